//! Runs a pooler between a store and PostgreSQL, of a test's own.

use std::fs::{self, Permissions};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use sqlx::postgres::PgConnectOptions;
use tempfile::TempDir;

/// How long it may take to start: a test must not hang.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// PgBouncer, of Debian's package of that name; ends when this is dropped.
#[derive(Debug)]
pub(crate) struct PgBouncer {
    process: Child,
    options: PgConnectOptions,
    url: String,
    _folder: TempDir,
}

impl PgBouncer {
    /// Starts one that pools like this (`session`, `transaction`) before the database of a URL.
    pub(crate) fn start(pool_mode: &str, url: &str) -> Self {
        let database: PgConnectOptions = url.parse().expect("a URL of PostgreSQL");
        let folder = TempDir::new().expect("a temporary folder");
        let port = free_port();
        let users = folder.path().join("users.txt");
        let settings = folder.path().join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host={} port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\n\
             unix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = {pool_mode}\ndefault_pool_size = 20\n",
            database.get_host(),
            database.get_port(),
            users.display(),
        );
        fs::write(&settings, text).expect("its settings");
        fs::write(&users, "\"delayline\" \"\"\n").expect("its users");
        // It refuses to run as root, and another user has to read these.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).expect("permissions");
        let mut command =
            match fs::metadata("/proc/self").map(|own| std::os::unix::fs::MetadataExt::uid(&own)) {
                Ok(0) => {
                    let mut command = Command::new("setpriv");
                    command.args(["--reuid=nobody", "--regid=nogroup", "--clear-groups", "pgbouncer"]);
                    command
                }
                _ => Command::new("pgbouncer"),
            };
        let path = std::env::var("PATH").unwrap_or_default();
        let mut process = command
            .env("PATH", format!("{path}:/usr/sbin"))
            .arg("--quiet")
            .arg(&settings)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("pgbouncer, of Debian's package of that name");
        let begun = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            let ended = process.try_wait().expect("its state");
            assert!(ended.is_none(), "pgbouncer has ended: {ended:?}");
            assert!(begun.elapsed() < STARTS_WITHIN, "pgbouncer does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
        let name = database.get_database().expect("a URL with a database");
        Self {
            process,
            options: database
                .clone()
                .host("127.0.0.1")
                .port(port)
                .extra_float_digits(None),
            url: format!("postgres://delayline@127.0.0.1:{port}/{name}"),
            _folder: folder,
        }
    }

    /// The URL of the same database through it.
    pub(crate) fn url(&self) -> String {
        self.url.clone()
    }

    /// The same for the driver alone, without what PgBouncer does not know.
    pub(crate) fn options(&self) -> PgConnectOptions {
        self.options.clone()
    }
}

impl Drop for PgBouncer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A port that systems do not take for outgoing connections.
fn free_port() -> u16 {
    (0..1_000)
        .map(|_| fastrand::u16(24_000..28_000))
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .expect("a free port")
}
