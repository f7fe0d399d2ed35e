//! The examples as programs.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// Ends a test that hangs; it says nothing about how long anything should take.
pub(crate) const HANGS_AFTER: Duration = Duration::from_secs(180);

/// Names the file of an example: Cargo builds them beside the tests, in the folder next to theirs.
fn file(example: &str) -> PathBuf {
    let test = std::env::current_exe().expect("a test has a file");
    let built = test.parent().and_then(Path::parent).expect("in a folder in one");
    let file = built.join(format!("examples/{example}{}", std::env::consts::EXE_SUFFIX));
    assert!(
        file.exists(),
        "build it first, with the features of this test: cargo build --example {example}"
    );
    file
}

/// Makes the command that runs an example, which ends with it.
pub(crate) fn command(example: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(file(example));
    command
        .args(arguments)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Runs an example to its end.
pub(crate) async fn run(example: &str, arguments: &[&str]) -> Output {
    let output = command(example, arguments).output();
    timeout(HANGS_AFTER, output).await.expect("it hangs").unwrap()
}

/// Runs an example that succeeds without complaints; returns its output.
pub(crate) async fn said(example: &str, arguments: &[&str]) -> String {
    let output = run(example, arguments).await;
    let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    assert_eq!(complained, "", "{said}");
    said
}
