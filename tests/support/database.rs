//! Runs real databases for the tests of the stores.
#![allow(dead_code)] // Not every test asks everything of it.

#[path = "root.rs"]
#[allow(clippy::duplicate_mod)] // Others that a test has beside this want it, too.
mod root;

use std::env;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};
use std::{fs, thread};

use sqlx::{AssertSqlSafe, Executor};
use tempfile::TempDir;

/// How long a killed server may take to end: a test must not hang.
const ENDS_WITHIN: Duration = Duration::from_secs(60);

/// Which of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Database {
    Postgres,
    MariaDb,
}

impl Database {
    fn script(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            // By night MySQL, which has the same interface.
            Self::MariaDb if env::var("DELAYLINE_MYSQL_SCRIPT").is_ok_and(|name| name == "mysql") => "mysql",
            Self::MariaDb => "mariadb",
        }
    }

    /// What names the server that the tests share.
    fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "DELAYLINE_POSTGRES",
            Self::MariaDb => "DELAYLINE_MYSQL",
        }
    }

    /// Makes an empty database on the shared server, and returns its URL. It lasts as long as the server.
    pub(crate) async fn fresh(self) -> String {
        let variable = self.variable();
        let shared = env::var(variable).unwrap_or_else(|_| {
            panic!(
                "this test needs the URL of a server in {variable}: run `scripts/test`, which starts one, or \
                 `scripts/{} start DIR PORT`, which prints it",
                self.script()
            )
        });
        let name = format!("delayline_{:016x}", fastrand::u64(..));
        let create = AssertSqlSafe(format!("CREATE DATABASE {name}"));
        let made = match self {
            #[cfg(feature = "postgres")]
            Self::Postgres => sqlx::PgPool::connect_lazy(&shared)
                .expect("a URL of PostgreSQL")
                .execute(create)
                .await
                .map(drop),
            #[cfg(feature = "mysql")]
            Self::MariaDb => sqlx::MySqlPool::connect_lazy(&shared)
                .expect("a URL of MariaDB")
                .execute(create)
                .await
                .map(drop),
            #[allow(unreachable_patterns)]
            other => unreachable!("the feature of {other:?} is on where its tests are"),
        };
        made.expect("a database of the test's own");
        let (url, options) = shared.split_at(shared.find('?').unwrap_or(shared.len()));
        let (server, _) = url.rsplit_once('/').expect("a URL with a database");
        format!("{server}/{name}{options}")
    }
}

/// A server of a test's own, in a temporary folder, for a test that kills it; stopped when this is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    database: Database,
    folder: TempDir,
    port: u16,
    settings: Vec<String>,
}

impl Server {
    /// Starts one with an empty database.
    pub(crate) fn start(database: Database) -> Self {
        Self::start_with(database, Vec::new())
    }

    /// Starts one in a folder of the test's.
    pub(crate) fn start_in(folder: TempDir, database: Database) -> Self {
        Self::start_in_with(folder, database, Vec::new())
    }

    /// Starts one over TLS as well, by a certificate and its key in PEM.
    pub(crate) fn start_tls(database: Database, certificate: &Path, key: &Path) -> Self {
        match database {
            Database::MariaDb => {
                let settings = [("cert", certificate), ("key", key)];
                let settings = settings.map(|(name, file)| format!("--ssl-{name}={}", file.display()));
                Self::start_with(database, settings.into())
            }
            Database::Postgres => {
                let server = Self::start(database);
                server.turn_to_tls(certificate, key);
                server
            }
        }
    }

    /// PostgreSQL reads a key only if its own user owns it, and the certificate again when it is told to.
    fn turn_to_tls(&self, certificate: &Path, key: &Path) {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

        let data = self.folder.path().join("data");
        let owner = fs::metadata(&data).expect("the cluster");
        for (name, from) in [("server.crt", certificate), ("server.key", key)] {
            let to = data.join(name);
            fs::copy(from, &to).expect("a copy");
            fs::set_permissions(&to, fs::Permissions::from_mode(0o600)).expect("its permissions");
            chown(&to, Some(owner.uid()), Some(owner.gid())).expect("its owner");
        }
        let settings = data.join("postgresql.auto.conf");
        let mut text = fs::read_to_string(&settings).unwrap_or_default();
        text.push_str("ssl = on\n");
        fs::write(&settings, text).expect("settings");
        self.signal("-HUP");
        // The log says when it is done.
        let told = Instant::now();
        while !fs::read_to_string(self.folder.path().join("postgres.log"))
            .expect("the log")
            .contains(r#""ssl" changed to "on""#)
        {
            assert!(
                told.elapsed() < ENDS_WITHIN,
                "PostgreSQL does not read its settings"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn start_with(database: Database, settings: Vec<String>) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        Self::start_in_with(folder, database, settings)
    }

    /// Starts one in a folder, and MariaDB with further settings.
    pub(crate) fn start_in_with(folder: TempDir, database: Database, settings: Vec<String>) -> Self {
        let mut server = Self {
            database,
            folder,
            port: 0,
            settings,
        };
        let mut answers = Vec::new();
        // Between finding a free port and listening on it another process may take it.
        for _ in 0..3 {
            server.port = free_port();
            let answer = server.run_start();
            if answer.status.success() {
                return server;
            }
            answers.push(String::from_utf8_lossy(&answer.stderr).into_owned());
        }
        panic!("{database:?} does not start:\n{}", answers.concat());
    }

    /// Returns the URL of its database.
    pub(crate) fn url(&self) -> String {
        let url = std::fs::read_to_string(self.folder.path().join("url")).expect("the server's URL");
        url.trim().to_owned()
    }

    /// Ends it at once, as a crash does, with PostgreSQL's sessions: these are processes of their own, which would
    /// answer until they see that their parent is gone.
    pub(crate) fn kill(&self) {
        // So that it starts no others meanwhile.
        self.signal("-STOP");
        let _none_of_mariadb = Command::new("pkill")
            .args(["-KILL", "-P", &self.process().to_string()])
            .status()
            .expect("pkill");
        self.signal("-KILL");
        let killed = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {
            assert!(killed.elapsed() < ENDS_WITHIN, "a killed server still listens");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The id of its process, or of the parent of its processes.
    pub(crate) fn process(&self) -> u32 {
        let file = self.folder.path().join(format!("{}.pid", self.database.script()));
        let id = std::fs::read_to_string(file).expect("the server's process");
        id.trim().parse().expect("the id of a process")
    }

    /// The folder with all its files.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    fn signal(&self, signal: &str) {
        let done = Command::new("kill")
            .args([signal, &self.process().to_string()])
            .status()
            .expect("kill");
        assert!(done.success(), "kill {signal}: {done}");
    }

    /// Runs SQL as the owner of a MariaDB server, over its socket.
    pub(crate) fn administer(&self, sql: &str) {
        let done = Command::new("mariadb")
            .arg("--no-defaults")
            .arg(format!("--socket=./{}.sock", self.database.script()))
            .args(["--execute", sql])
            .current_dir(self.folder.path().join("data"))
            .status()
            .expect("mariadb, the client");
        assert!(done.success(), "{sql}: {done}");
    }

    /// Restarts it with the same rows, on the same port, after it was killed.
    pub(crate) fn start_again(&self) {
        let answer = self.run_start();
        let why = String::from_utf8_lossy(&answer.stderr);
        assert!(
            answer.status.success(),
            "{:?} does not start again:\n{why}",
            self.database
        );
    }

    fn run_start(&self) -> Output {
        let mut args = vec![self.port.to_string()];
        args.extend_from_slice(&self.settings);
        self.run("start", &args)
    }

    fn run(&self, verb: &str, args: &[String]) -> Output {
        let scripts = root::root().join("scripts");
        Command::new(scripts.join(self.database.script()))
            .arg(verb)
            .arg(self.folder.path())
            .args(args)
            .output()
            .expect("run the server's script")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.run("stop", &[]);
    }
}

/// Returns a port that systems do not take for outgoing connections: otherwise the client that waits for a killed
/// server might take the server's.
fn free_port() -> u16 {
    (0..1_000)
        .map(|_| fastrand::u16(20_000..24_000))
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .expect("a free port")
}
