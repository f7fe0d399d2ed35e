//! Runs a process of the service: this test binary once more, with one test.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use crate::suspend::{Clocks, Still, Stopped};

/// A process whose machine can be suspended, killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    clocks: Arc<Clocks>,
}

impl Process {
    /// Starts one that runs the test of this name, which learns from its environment what to do.
    pub(crate) fn start(test: &str, environment: &[(&str, OsString)]) -> Self {
        let clocks = Clocks::build();
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", test, "--nocapture"])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .envs(clocks.environment())
            // For a trace of a panic, as where its handler fails, it would keep what it has read of its own file.
            .env("RUST_BACKTRACE", "0")
            // How much memory it has is to grow by what it keeps: glibc's allocator, which has a heap for each of many threads,
            // keeps up to three times as much over a file of SQLite, whose connections are a thread each.
            .env("MALLOC_ARENA_MAX", "1")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, clocks }
    }

    /// Stops it until the returned value is dropped.
    pub(crate) fn stop(&self, still: Still) -> Stopped {
        self.clocks.stop(self.child.id(), still)
    }

    /// Ends it as `kill -9` does; it has not ended by itself.
    pub(crate) fn kill(&mut self) {
        self.assert_lives();
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub(crate) fn assert_lives(&mut self) {
        assert_eq!(self.child.try_wait().unwrap(), None, "a process ended by itself");
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// How much memory it has, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
