//! Runs a single server.

use tempfile::TempDir;

use super::process::Process;

/// A redis-server of its own, in a temporary folder, on a free port of the loopback; killed when this is dropped.
#[derive(Debug)]
pub(crate) struct RedisServer {
    process: Process,
    _folder: TempDir,
}

impl RedisServer {
    /// Starts one that keeps nothing on disk.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// Starts one with further arguments.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let process = Process::start(folder.path().to_owned(), |port| {
            let port = port.to_string();
            ["--port", &port, "--save", "", "--appendonly", "no"]
                .iter()
                .chain(args)
                .map(|&arg| arg.to_owned())
                .collect()
        });
        Self {
            process,
            _folder: folder,
        }
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.process.port())
    }

    /// A blocking connection of the test's own.
    pub(crate) fn admin(&self) -> redis::Connection {
        redis::Client::open(self.url())
            .and_then(|client| client.get_connection())
            .expect("a connection to the test's server")
    }

    /// Sends it a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        self.process.signal(name);
    }

    /// Ends it at once, as a crash does.
    pub(crate) fn kill(&mut self) {
        self.process.kill();
    }

    /// Restarts it on the same port, after it was killed.
    pub(crate) fn restart(&mut self) {
        self.process.restart();
    }
}
