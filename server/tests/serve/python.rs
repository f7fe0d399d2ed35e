//! Python with the packages that some tests need, in a folder of the build's.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use tokio::task::spawn_blocking;

const WANTED: &str = concat!(
    include_str!("../clients/python/requirements.txt"),
    include_str!("../clients/python/axe.txt")
);

/// The files of `server/tests/clients/python`.
pub(crate) fn files() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/python")
}

/// The interpreter. Its packages are installed by the first test that asks, and stay there for later runs.
pub(crate) async fn python() -> PathBuf {
    static PYTHON: OnceLock<PathBuf> = OnceLock::new();
    spawn_blocking(|| PYTHON.get_or_init(installed).clone())
        .await
        .unwrap()
}

/// The script of axe-core, which looks at a page for what keeps people from using it.
pub(crate) async fn axe() -> String {
    let find = "import axe_playwright_python as axe; print(axe.__path__[0])";
    let found = Command::new(python().await).args(["-c", find]).output().unwrap();
    let folder = String::from_utf8(found.stdout).unwrap();
    fs::read_to_string(Path::new(folder.trim()).join("axe.min.js")).unwrap()
}

fn installed() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("python");
    fs::create_dir_all(&folder).unwrap();
    // Another run of the tests may be at it.
    let lock = File::create(folder.join("lock")).unwrap();
    lock.lock().unwrap();
    let (environment, mark) = (folder.join("environment"), folder.join("installed"));
    let python = environment.join("bin/python3");
    let is_there = fs::read_to_string(&mark).is_ok_and(|installed| installed == WANTED);
    if !(is_there && python.exists()) {
        run("python3", ["-m", "venv", "--clear"], &environment);
        let install = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--requirement",
        ];
        run(&python, install, &files().join("requirements.txt"));
        // Not what it needs to drive a browser of its own.
        let alone = [
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--requirement",
        ];
        run(&python, alone, &files().join("axe.txt"));
        fs::write(mark, WANTED).unwrap();
    }
    python
}

fn run<const N: usize>(program: impl AsRef<OsStr>, arguments: [&str; N], last: &Path) {
    let mut command = Command::new(program);
    let output = command.args(arguments).arg(last).output();
    let output = output.expect("python3 is needed");
    let said = [&output.stdout[..], &output.stderr[..]].concat();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&said)
    );
}
