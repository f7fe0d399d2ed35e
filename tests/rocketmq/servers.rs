//! Servers that a test may kill.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::LEVELS;

/// A nameserver and broker that a test may kill.
pub(crate) struct OwnBroker {
    dir: tempfile::TempDir,
    pub(crate) nameserver: String,
}

impl OwnBroker {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let nameserver = start(dir.path());
        Self { dir, nameserver }
    }

    pub(crate) fn kill(&self) {
        let id = std::fs::read_to_string(self.dir.path().join("broker.pid")).unwrap();
        assert!(
            Command::new("kill")
                .args(["-KILL", id.trim()])
                .status()
                .unwrap()
                .success()
        );
    }

    pub(crate) fn start_again(&self) {
        assert_eq!(start(self.dir.path()), self.nameserver);
    }
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(self.dir.path()).status();
    }
}

fn start(dir: &Path) -> String {
    let output = Command::new(script())
        .arg("start")
        .arg(dir)
        .args(["--levels", LEVELS])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "scripts/rocketmq could not start a broker"
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .last()
        .unwrap()
        .to_owned()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/rocketmq")
}
