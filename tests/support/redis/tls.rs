//! Runs a single server that speaks TLS only, with accounts.

use std::path::PathBuf;

use tempfile::TempDir;

use super::process::Process;
use super::security::{ADMIN, Security, USER};

/// A redis-server over TLS in which one user may do only what the test says; killed when this is dropped.
///
/// Clients without a user may do nothing.
#[derive(Debug)]
pub(crate) struct RedisTlsServer {
    process: Process,
    security: Security,
    _folder: TempDir,
}

impl RedisTlsServer {
    /// Starts one whose user `delayline` may do what `rules` say (such as `~{shop}* &{shop}* +zadd`), and nothing
    /// else.
    pub(crate) fn start(rules: &str) -> Self {
        Self::start_secured(rules, false)
    }

    /// Starts one that also wants every client to show a certificate of the authority.
    pub(crate) fn start_for_certified(rules: &str) -> Self {
        Self::start_secured(rules, true)
    }

    fn start_secured(rules: &str, demands_certificates: bool) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let security = Security::make(folder.path(), rules, demands_certificates);
        let process = Process::start(folder.path().join("server"), |port| {
            let mut args = security.args(port);
            args.extend(["--save", "", "--appendonly", "no"].map(str::to_owned));
            args
        });
        Self {
            process,
            security,
            _folder: folder,
        }
    }

    /// Its URL, with user and password.
    pub(crate) fn url(&self) -> String {
        format!(
            "rediss://{}:{}@localhost:{}",
            USER.name,
            USER.password,
            self.process.port()
        )
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.process.port()
    }

    /// The certificate of its authority, in PEM.
    pub(crate) fn ca(&self) -> PathBuf {
        self.security.certificates().ca()
    }

    /// A client's certificate and its key, in PEM.
    pub(crate) fn client_certificate(&self) -> (PathBuf, PathBuf) {
        self.security.certificates().of("client")
    }

    /// Makes a blocking connection of the test's own, which may do everything, by the socket and without TLS.
    pub(crate) fn admin(&self) -> redis::Connection {
        self.process.admin(Some(&ADMIN))
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
