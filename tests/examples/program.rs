//! The examples as programs.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt};
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

/// Runs an example to its end. Where it hangs, the test tells what it wrote until then.
pub(crate) async fn run(example: &str, arguments: &[&str]) -> Output {
    let mut child = command(example, arguments).spawn().unwrap();
    let output = tokio::spawn(read(child.stdout.take()));
    let errors = tokio::spawn(read(child.stderr.take()));
    let ended = timeout(HANGS_AFTER, child.wait()).await;
    if ended.is_err() {
        child.kill().await.unwrap();
    }
    let (stdout, stderr) = (output.await.unwrap(), errors.await.unwrap());
    let Ok(status) = ended else {
        let [said, complained] = [&stdout, &stderr].map(|bytes| String::from_utf8_lossy(bytes));
        panic!("{example} hangs:\n{said}\n{complained}");
    };
    Output {
        status: status.unwrap(),
        stdout,
        stderr,
    }
}

async fn read(pipe: Option<impl AsyncRead + Unpin>) -> Vec<u8> {
    let mut bytes = Vec::new();
    pipe.expect("it is piped").read_to_end(&mut bytes).await.unwrap();
    bytes
}

/// Runs an example that succeeds without complaints; returns its output.
pub(crate) async fn said(example: &str, arguments: &[&str]) -> String {
    let output = run(example, arguments).await;
    let [said, complained] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    assert_eq!(complained, "", "{said}");
    said
}
