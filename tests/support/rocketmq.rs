//! Runs RocketMQ servers of a test's own.
#![allow(dead_code)] // Not every test that starts them asks everything of them.

#[path = "root.rs"]
#[allow(clippy::duplicate_mod)] // Others that a test has beside this want it, too.
mod root;

use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

/// The part that always exists; the others are `namesrv`, and with more masters `broker-b` and so on.
pub(crate) const BROKER: &str = "broker-a";

/// A nameserver and brokers for a test that kills them, or needs other settings than usual; stopped when this is
/// dropped.
#[derive(Debug)]
pub(crate) struct RocketMqServers {
    folder: TempDir,
    pub(crate) nameserver: String,
}

impl RocketMqServers {
    /// Starts them with arguments of `scripts/rocketmq start`. Without timers by default: an idle broker spends a third
    /// of its time on checking whether one is due. A test that deletes topics needs them, as a broker 5.3 without
    /// timers then answers with an error of its own.
    pub(crate) fn start(args: &[&str]) -> Self {
        let args = [&["--set", "timerWheelEnable=false"], args].concat();
        // Held while they start: parts that have started are stopped if the rest does not.
        let mut servers = Self::in_a_folder();
        let mut started = servers.try_to("start", &args);
        for _ in 0..3 {
            // A port that was free may be taken before a server listens there.
            match &started {
                Err(said) if said.contains("Address already in use") => {
                    servers = Self::in_a_folder();
                    started = servers.try_to("start", &args);
                }
                _ => break,
            }
        }
        servers.nameserver = started.unwrap_or_else(|said| panic!("{said}"));
        servers
    }

    fn in_a_folder() -> Self {
        Self {
            folder: TempDir::new().expect("a temporary folder"),
            nameserver: String::new(),
        }
    }

    /// Kills a part as `kill -9` does, and waits until it has ended.
    pub(crate) fn kill(&self, part: &str) {
        self.run("kill", &["--only", part]);
    }

    /// Stops a part, and waits for it.
    pub(crate) fn stop(&self, part: &str) {
        self.run("stop", &["--only", part]);
    }

    /// Restarts ended parts, as they were.
    pub(crate) fn start_again(&self) {
        self.start_again_with(&[]);
    }

    /// Restarts ended parts, with further arguments of `scripts/rocketmq start`.
    pub(crate) fn start_again_with(&self, args: &[&str]) {
        assert_eq!(self.run("start", args), self.nameserver);
    }

    /// Where a part listens.
    pub(crate) fn port(&self, part: &str) -> u16 {
        let settings =
            std::fs::read_to_string(self.folder.path().join(format!("{part}.conf"))).expect("settings");
        let port = settings.lines().find_map(|line| line.strip_prefix("listenPort="));
        port.and_then(|port| port.parse().ok()).expect("a port")
    }

    /// The process of a part.
    pub(crate) fn process(&self, part: &str) -> u32 {
        let id = std::fs::read_to_string(self.folder.path().join(format!("{part}.pid"))).expect("a process");
        id.trim().parse().expect("the id of a process")
    }

    /// Returns a broker's files about its topics, its groups and their offsets, as last written.
    pub(crate) fn kept(&self, broker: &str) -> String {
        let folder = self.folder.path().join("home").join(broker).join("store/config");
        let names = ["topics.json", "subscriptionGroup.json", "consumerOffset.json"];
        // A file that is just being written may not be there.
        let kept = names.map(|name| std::fs::read_to_string(folder.join(name)).unwrap_or_default());
        kept.concat()
    }

    /// The access key and the secret key of `admin` or `worker`, after a start with `--acl`.
    pub(crate) fn account(&self, name: &str) -> (String, String) {
        let accounts = std::fs::read_to_string(self.folder.path().join("accounts")).expect("accounts");
        accounts
            .lines()
            .find_map(|line| match *line.split(' ').collect::<Vec<_>>() {
                [account, access, secret] if account == name => Some((access.to_owned(), secret.to_owned())),
                _ => None,
            })
            .expect("an account of that name")
    }

    /// The certificate of their authority, after a start with `--tls`.
    pub(crate) fn authority(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Runs the script, and returns the last line that it prints.
    fn run(&self, verb: &str, args: &[&str]) -> String {
        self.try_to(verb, args).unwrap_or_else(|said| panic!("{said}"))
    }

    fn try_to(&self, verb: &str, args: &[&str]) -> Result<String, String> {
        let output = self.command(verb).args(args).output().expect("run the script");
        if !output.status.success() {
            return Err(format!(
                "scripts/rocketmq {verb} {args:?}: {}, and said: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).replace('\n', " / ")
            ));
        }
        let printed = String::from_utf8(output.stdout).expect("text");
        Ok(printed.lines().last().unwrap_or_default().to_owned())
    }

    fn command(&self, verb: &str) -> Command {
        let mut script = Command::new(root::root().join("scripts/rocketmq"));
        script.arg(verb).arg(self.folder.path());
        script
    }
}

impl Drop for RocketMqServers {
    fn drop(&mut self) {
        // What they would save in peace, which takes some seconds, is not needed.
        drop(self.command("kill").output());
    }
}
