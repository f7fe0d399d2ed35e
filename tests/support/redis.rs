//! A private redis-server for a test.
#![allow(dead_code)] // Not every test that starts one asks everything of it.

use std::env;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long a server may take to start: only so that a test does not hang.
const STARTS_WITHIN: Duration = Duration::from_secs(60);

/// A redis-server of its own, in a temporary folder, on a free port of the loopback; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct RedisServer {
    folder: TempDir,
    port: u16,
    args: Vec<String>,
    child: Child,
}

impl RedisServer {
    /// Starts one that keeps nothing on disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with further arguments.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        // Between finding a free port and listening on it somebody else may take it.
        for _ in 0..20 {
            let port = free_port();
            if let Some(child) = spawn(&folder, port, &args) {
                return Self {
                    folder,
                    port,
                    args,
                    child,
                };
            }
        }
        let log = std::fs::read_to_string(folder.path().join("log")).unwrap_or_default();
        panic!("redis-server does not start:\n{log}");
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// A blocking connection of the test's own.
    pub(crate) fn admin(&self) -> redis::Connection {
        redis::Client::open(self.url())
            .and_then(|client| client.get_connection())
            .expect("a connection to the test's server")
    }

    /// Sends it a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let done = Command::new("kill")
            .args([format!("-{name}"), self.child.id().to_string()])
            .status()
            .expect("kill");
        assert!(done.success(), "kill -{name}: {done}");
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kill the server");
        self.child.wait().expect("the killed server");
    }

    /// Starts it again on the same port, after it was killed.
    pub(crate) fn restart(&mut self) {
        self.child = spawn(&self.folder, self.port, &self.args).expect("the port is still free");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // It may be dead already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    listener.local_addr().expect("its address").port()
}

/// A server that answers, or none if it ended by itself.
fn spawn(folder: &TempDir, port: u16, args: &[String]) -> Option<Child> {
    let log = std::fs::File::create(folder.path().join("log")).expect("a log file");
    let mut child = Command::new(binary())
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1"])
        .args(["--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(folder.path())
        .args(args)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("a second handle of the log"))
        .stderr(log)
        .spawn()
        .expect("start redis-server");
    let started = Instant::now();
    while started.elapsed() < STARTS_WITHIN {
        if child.try_wait().expect("the state of the server").is_some() {
            return None;
        }
        if answers(port) {
            return Some(child);
        }
        thread::sleep(Duration::from_millis(5));
    }
    drop(child.kill());
    drop(child.wait());
    panic!("redis-server does not answer within {STARTS_WITHIN:?}");
}

fn answers(port: u16) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 7];
        stream.read_exact(&mut answer)?;
        Ok::<_, std::io::Error>(answer)
    };
    // One that wants a password is ready too.
    ask().is_ok_and(|answer| answer.starts_with(b"+PONG") || answer.starts_with(b"-NOAUTH"))
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
