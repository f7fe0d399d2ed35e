//! The programs of `examples/clients`, in their languages.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::server::Server;

/// A language, with what its programs need to be run.
pub(crate) enum Language {
    Python,
    Go(TempDir),
    Java,
}

pub(crate) fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/clients")
}

impl Language {
    /// Go's are built first: what runs them would not end them.
    pub(crate) async fn go() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut go = Command::new("go");
        go.args(["build", "-o"]).arg(folder.path()).arg("./...");
        go.current_dir(examples().join("go"));
        let built = spawn_blocking(move || go.output().expect("go is needed"))
            .await
            .unwrap();
        assert!(
            built.status.success(),
            "{}",
            String::from_utf8_lossy(&built.stderr)
        );
        Self::Go(folder)
    }

    /// Runs `shop`, `worker` or `webhook`; Java has no worker.
    pub(crate) fn command(&self, program: &str) -> Command {
        match self {
            Self::Python => {
                let mut command = Command::new("python3");
                command.env("PYTHONDONTWRITEBYTECODE", "1");
                command.arg(examples().join("python").join(format!("{program}.py")));
                command
            }
            Self::Go(folder) => Command::new(folder.path().join(program)),
            Self::Java => {
                let name = match program {
                    "shop" => "Shop.java",
                    _ => "Webhook.java",
                };
                let mut command = Command::new("java");
                command.arg(examples().join("java").join(name));
                command
            }
        }
    }
}

/// A program that goes on, and ends with its test.
pub(crate) struct Program {
    process: Child,
    said: Option<BufReader<ChildStdout>>,
}

impl Program {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = process.stdout.take().map(BufReader::new);
        Self { process, said }
    }

    /// A worker that claims tasks of the kind `report.build`, each for so many seconds.
    pub(crate) fn worker(language: &Language, server: &Server, lease: &str) -> Self {
        let mut command = language.command("worker");
        command.args([&server.url, "report.build", lease]);
        Self::start(command)
    }

    /// The next line that it says.
    pub(crate) async fn says(&mut self) -> String {
        let mut said = self.said.take().unwrap();
        let (line, said) = spawn_blocking(move || {
            let mut line = String::new();
            said.read_line(&mut line).unwrap();
            (line, said)
        })
        .await
        .unwrap();
        self.said = Some(said);
        line.trim().to_owned()
    }

    /// Sends it a signal, such as `STOP`.
    pub(crate) fn signal(&self, name: &str) {
        let id = self.process.id().to_string();
        let sent = Command::new("kill").args(["-s", name, &id]).status();
        assert!(sent.unwrap().success());
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
