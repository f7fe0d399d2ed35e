//! Runs a worker in a process of its own: this test binary once more, with one test.

use std::env;
use std::process::{Child, Command, Stdio};

/// A worker's process, killed when this is dropped.
pub(crate) struct Process(Child);

impl Process {
    /// Starts one that runs the test of this name, which learns from its environment where the service is.
    pub(crate) fn start(test: &str, environment: &[(&str, &str)]) -> Self {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// Ends it as `kill -9` does; it has not ended by itself.
    pub(crate) fn kill(&mut self) {
        assert_eq!(self.0.try_wait().unwrap(), None, "a worker ended by itself");
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
