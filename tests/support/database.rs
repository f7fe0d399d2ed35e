//! Real databases for the tests of the stores.
#![allow(dead_code)] // Not every test asks everything of it.

use std::env;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::thread;
use std::time::{Duration, Instant};

use sqlx::{AssertSqlSafe, Executor};
use tempfile::TempDir;

/// How long a killed server may take to end: only so that a test does not hang.
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

    /// Makes an empty database on the shared server, and tells its URL. It goes with the server.
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
}

impl Server {
    /// Starts one with an empty database.
    pub(crate) fn start(database: Database) -> Self {
        Self::start_in(TempDir::new().expect("a temporary folder"), database)
    }

    /// The same in a folder of the test's.
    pub(crate) fn start_in(folder: TempDir, database: Database) -> Self {
        let mut server = Self {
            database,
            folder,
            port: 0,
        };
        let mut answers = Vec::new();
        // Between finding a free port and listening on it somebody else may take it.
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

    /// The URL of its database.
    pub(crate) fn url(&self) -> String {
        let url = std::fs::read_to_string(self.folder.path().join("url")).expect("the server's URL");
        url.trim().to_owned()
    }

    /// Ends it at once, as a crash does. The sessions of PostgreSQL are processes of their own: each ends when it sees
    /// this, an idle one at once.
    pub(crate) fn kill(&self) {
        let done = Command::new("kill")
            .args(["-KILL", &self.process().to_string()])
            .status()
            .expect("kill");
        assert!(done.success(), "kill -KILL: {done}");
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

    /// Starts it again with the same rows, on the same port, after it was killed.
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
        self.run("start", &[self.port.to_string()])
    }

    fn run(&self, verb: &str, args: &[String]) -> Output {
        let scripts = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("scripts");
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

/// A port that systems do not take for outgoing connections: else the client that waits for a killed server to be
/// back might take the server's.
fn free_port() -> u16 {
    (0..1_000)
        .map(|_| fastrand::u16(20_000..32_000))
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .expect("a free port")
}
