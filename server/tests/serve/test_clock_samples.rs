//! The tests in `examples/clients` of services in other languages, which turn the clock of a server of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use tokio::task::spawn_blocking;

use crate::programs::examples;
use crate::python::python;

/// What a command prints that succeeds.
fn said(command: &mut Command) -> String {
    let output = command
        .env("DELAYLINE", env!("CARGO_BIN_EXE_delayline"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// JUnit's launcher, from Maven Central: fetched by the first test that asks, and kept for later runs.
fn junit() -> PathBuf {
    const VERSION: &str = "1.11.4";
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("junit");
    let jar = folder.join(format!("junit-platform-console-standalone-{VERSION}.jar"));
    if !jar.exists() {
        std::fs::create_dir_all(&folder).unwrap();
        let artefact = format!("-Dartifact=org.junit.platform:junit-platform-console-standalone:{VERSION}");
        let mut maven = Command::new("mvn");
        maven.args(["-q", "-B", "dependency:copy", &artefact]);
        said(maven.arg(format!("-DoutputDirectory={}", folder.display())));
    }
    jar
}

#[tokio::test]
async fn a_test_in_java_turns_the_clock() {
    spawn_blocking(|| {
        let (junit, built) = (junit(), tempfile::tempdir().unwrap());
        let mut javac = Command::new("javac");
        javac.arg("-cp").arg(&junit).arg("-d").arg(built.path());
        said(javac.arg(examples().join("java/UnpaidOrderTest.java")));
        let begun = Instant::now();
        let mut java = Command::new("java");
        java.arg("-jar").arg(&junit).args([
            "execute",
            "--disable-banner",
            "--select-class",
            "UnpaidOrderTest",
        ]);
        let said = said(java.arg("-cp").arg(built.path()));
        println!("{said}\nwith its JVM: {:?}", begun.elapsed());
        assert!(said.contains("2 tests successful"), "{said}");
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_test_in_python_turns_the_clock() {
    let python = python().await;
    spawn_blocking(move || {
        let begun = Instant::now();
        let mut pytest = Command::new(python);
        pytest.env("PYTHONDONTWRITEBYTECODE", "1").args([
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "--durations=0",
        ]);
        let said = said(pytest.arg(examples().join("python/test_unpaid_order.py")));
        println!("{said}\nwith its interpreter: {:?}", begun.elapsed());
        assert!(said.contains("2 passed"), "{said}");
    })
    .await
    .unwrap();
}
