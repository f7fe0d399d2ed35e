//! Runs one process of redis-server.

use std::env;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::{ConnectionAddr, IntoConnectionInfo};

use super::patience::{PATIENCE, until};
use super::ports::free_port;
use super::security::Account;

/// How much of its log a server shows where a test has failed.
const LINES_SHOWN: usize = 30;

/// A redis-server in a folder of its own; killed when this is dropped.
///
/// Beside its port it listens on a socket in that folder: only this process answers there, and a test gets in there
/// also where the port wants TLS.
#[derive(Debug)]
pub(super) struct Process {
    folder: PathBuf,
    port: u16,
    args: Vec<String>,
    child: Mortal,
    stopped: AtomicBool,
}

impl Drop for Process {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let last = lines.len().saturating_sub(LINES_SHOWN);
        eprintln!("the last that the server at port {} wrote:", self.port);
        eprintln!("{}", lines[last..].join("\n"));
    }
}

/// A child process that does not outlive its owner, also while it starts.
#[derive(Debug)]
struct Mortal(Child);

impl Drop for Mortal {
    fn drop(&mut self) {
        // It may be dead already.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Why a process ended before it answered.
enum Ended {
    PortTaken,
    Otherwise(String),
}

impl Process {
    /// Starts one with the arguments that `args` makes of a free port.
    pub(super) fn start(folder: PathBuf, args: impl Fn(u16) -> Vec<String>) -> Self {
        fs::create_dir_all(&folder).expect("a folder");
        // Between finding a free port and listening on it another process may take it.
        for _ in 0..20 {
            let port = free_port();
            let args = args(port);
            match spawn(&folder, &args) {
                Ok(child) => {
                    return Self {
                        folder,
                        port,
                        args,
                        child,
                        stopped: AtomicBool::new(false),
                    };
                }
                Err(Ended::PortTaken) => {}
                Err(Ended::Otherwise(log)) if log.contains(">>> 'tls-") => panic!(
                    "this test needs a redis-server that was built with TLS, and {} was not: name another one by \
                     DELAYLINE_REDIS_SERVER (Debian's has it):\n{log}",
                    binary().display()
                ),
                Err(Ended::Otherwise(log)) => panic!("redis-server does not start:\n{log}"),
            }
        }
        panic!("redis-server finds every port taken");
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Makes a blocking connection, as `account` if the server has accounts.
    pub(super) fn admin(&self, account: Option<&Account>) -> redis::Connection {
        self.try_admin(account)
            .expect("a connection to the test's server")
    }

    /// Makes a connection to a server whose connections a test may cut.
    pub(super) fn try_admin(&self, account: Option<&Account>) -> redis::RedisResult<redis::Connection> {
        let info = ConnectionAddr::Unix(socket(&self.folder))
            .into_connection_info()
            .expect("its address");
        let mut settings = info.redis_settings().clone();
        if let Some(account) = account {
            settings = settings.set_username(account.name).set_password(account.password);
        }
        let connection = redis::Client::open(info.set_redis_settings(settings))?.get_connection()?;
        connection.set_read_timeout(Some(PATIENCE))?;
        Ok(connection)
    }

    /// Says whether it neither has ended nor is stopped.
    pub(super) fn lives(&self) -> bool {
        !self.stopped.load(Ordering::SeqCst) && UnixStream::connect(socket(&self.folder)).is_ok()
    }

    pub(super) fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .args([format!("-{name}"), self.child.0.id().to_string()])
            .status()
            .expect("kill");
        assert!(done.success(), "kill -{name}: {done}");
        match name {
            "STOP" => self.stopped.store(true, Ordering::SeqCst),
            "CONT" => self.stopped.store(false, Ordering::SeqCst),
            _ => {}
        }
    }

    pub(super) fn kill(&mut self) {
        self.child.0.kill().expect("kill the server");
        self.child.0.wait().expect("the killed server");
    }

    /// Restarts it on the same port, after it was killed.
    pub(super) fn restart(&mut self) {
        self.child = match spawn(&self.folder, &self.args) {
            Ok(child) => child,
            Err(Ended::PortTaken) => panic!("another process took port {}", self.port),
            Err(Ended::Otherwise(log)) => panic!("redis-server does not start again:\n{log}"),
        };
        self.stopped.store(false, Ordering::SeqCst);
    }
}

/// Starts a server, and waits until it answers.
fn spawn(folder: &Path, args: &[String]) -> Result<Mortal, Ended> {
    let log = File::create(folder.join("log")).expect("a log file");
    let child = Command::new(binary())
        .args(args)
        .args(["--bind", "127.0.0.1"])
        .arg("--dir")
        .arg(folder)
        .arg("--unixsocket")
        .arg(socket(folder))
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle of the log"))
        .stderr(log)
        .spawn()
        .expect("start redis-server");
    let mut child = Mortal(child);
    until("redis-server answers", || {
        if answers(folder) {
            return Some(true);
        }
        let ended = child.0.try_wait().expect("the state of the server").is_some();
        ended.then_some(false)
    })
    .then_some(child)
    .ok_or_else(|| {
        let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
        if log.contains("Failed listening on port") {
            Ended::PortTaken
        } else {
            Ended::Otherwise(log)
        }
    })
}

fn answers(folder: &Path) -> bool {
    let ask = || {
        let mut stream = UnixStream::connect(socket(folder))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok::<_, io::Error>(answer)
    };
    // One that wants a password is ready too.
    ask().is_ok_and(|answer| answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH"))
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("socket")
}

fn binary() -> PathBuf {
    if let Some(path) = env::var_os("DELAYLINE_REDIS_SERVER") {
        return path.into();
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&paths)
        .map(|folder| folder.join("redis-server"))
        .find(|path| path.is_file())
        .expect(
            "this test needs a redis-server, on PATH or named by DELAYLINE_REDIS_SERVER: run `scripts/test`, which \
             gets one, or install your system's package of it (Debian: redis-server)",
        )
}
