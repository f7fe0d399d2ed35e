//! Suspends the machine of a process: the process is stopped, and its clocks stand still meanwhile.
#![allow(dead_code)] // Not every test that suspends does it in each way.

#[path = "../root.rs"]
#[allow(clippy::duplicate_mod)] // Others that a test has beside this want it, too.
mod root;

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Which clocks of a stopped process stand still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Still {
    /// None: it has only been stopped, as by a long pause for memory.
    Stopped,
    /// `CLOCK_MONOTONIC`: the machine was suspended.
    Suspended,
    /// `CLOCK_BOOTTIME`, too: the virtual machine was paused by its host, and only its wall clock was set right.
    Paused,
}

/// The clocks of one process, whose environment names them.
#[derive(Debug)]
pub(crate) struct Clocks {
    folder: TempDir,
    file: File,
}

impl Clocks {
    /// Builds the library between a process and its clocks.
    pub(crate) fn build() -> Arc<Self> {
        let folder = TempDir::new().expect("a temporary folder");
        let source = root::root().join("tests/support/suspend/clocks.c");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O2", "-Wall", "-Werror", "-o"])
            .arg(folder.path().join("clocks.so"))
            .arg(source)
            .status()
            .expect("a C compiler, as `cc`");
        assert!(built.success(), "cc: {built}");
        let path = folder.path().join("stood-still");
        fs::write(&path, [0; 16]).expect("a file");
        let file = File::options().read(true).write(true).open(path);
        Arc::new(Self {
            file: file.expect("a file"),
            folder,
        })
    }

    /// Returns the environment for a process.
    pub(crate) fn environment(&self) -> [(&'static str, PathBuf); 2] {
        let at = |name| self.folder.path().join(name);
        [
            ("LD_PRELOAD", at("clocks.so")),
            ("DELAYLINE_STOOD_STILL", at("stood-still")),
        ]
    }

    /// Stops the process of this id until the returned value is dropped.
    pub(crate) fn stop(self: &Arc<Self>, process: u32, still: Still) -> Stopped {
        signal(process, "STOP");
        while !is_stopped(process) {
            sleep(Duration::from_millis(1));
        }
        Stopped {
            clocks: self.clone(),
            process,
            still,
            since: Instant::now(),
        }
    }

    fn stand_still(&self, clock: u64, span: Duration) {
        let at = clock * 8;
        let mut before = [0; 8];
        self.file.read_exact_at(&mut before, at).expect("its clock");
        let span = i64::try_from(span.as_nanos()).expect("less than centuries");
        let after = i64::from_ne_bytes(before) + span;
        self.file
            .write_all_at(&after.to_ne_bytes(), at)
            .expect("its clock");
    }
}

/// A process that stands still.
#[derive(Debug)]
pub(crate) struct Stopped {
    clocks: Arc<Clocks>,
    process: u32,
    still: Still,
    since: Instant,
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let span = self.since.elapsed();
        let clocks: &[u64] = match self.still {
            Still::Stopped => &[],
            Still::Suspended => &[0],
            Still::Paused => &[0, 1],
        };
        for &clock in clocks {
            self.clocks.stand_still(clock, span);
        }
        // While a test unwinds the process may be gone, and another panic would hide why.
        if !std::thread::panicking() {
            signal(self.process, "CONT");
        }
    }
}

/// Sends a process a signal, such as `STOP`.
pub(crate) fn signal(process: u32, name: &str) {
    let done = Command::new("kill")
        .args([format!("-{name}"), process.to_string()])
        .status()
        .expect("kill");
    assert!(done.success(), "kill -{name} {process}: {done}");
}

fn is_stopped(process: u32) -> bool {
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("a process that is there");
    status.lines().any(|line| line.starts_with("State:\tT"))
}
