//! A server of a test's own.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use reqwest::{Client, Method, RequestBuilder, StatusCode};
use serde_json::Value;
use tempfile::TempDir;

/// The command, in a folder of its own.
pub(crate) fn command(folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_delayline"));
    command.arg("serve").current_dir(folder).env_remove("RUST_LOG");
    // Spans are gathered for 5 s otherwise.
    command.env("OTEL_BSP_SCHEDULE_DELAY", "100");
    command
}

/// What the command says of a configuration.
pub(crate) fn check(config: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("delayline.toml"), config).unwrap();
    let mut command = command(folder.path());
    command.args(["--config", "delayline.toml", "--check"]);
    command.output().unwrap()
}

/// A server that runs, and ends with the test.
pub(crate) struct Server {
    child: Child,
    pub(crate) url: String,
    client: Client,
    pub(crate) folder: TempDir,
}

/// On a port that is free.
pub(crate) const ANY_PORT: &str = "[http]\nlisten = \"127.0.0.1:0\"\n";

impl Server {
    /// With a file of tasks of its own, on a port that is free.
    pub(crate) fn start() -> Self {
        Self::configured(ANY_PORT)
    }

    pub(crate) fn configured(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("delayline.toml"), config).unwrap();
        Self::of(folder, &["--config", "delayline.toml"])
    }

    pub(crate) fn of(folder: TempDir, arguments: &[&str]) -> Self {
        let mut command = command(folder.path());
        command.args(arguments);
        Self::run(folder, command)
    }

    pub(crate) fn run(folder: TempDir, mut command: Command) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        said.read_line(&mut line).unwrap();
        let Some(url) = line.trim().strip_prefix("serving ") else {
            let log = std::fs::read_to_string(folder.path().join("log")).unwrap();
            panic!("it says {line:?}, and in its log: {log}");
        };
        Self {
            url: url.to_owned(),
            client: Client::new(),
            child,
            folder,
        }
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        self.client.request(method, format!("{}{path}", self.url))
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        Answer::of(self.request(Method::GET, path)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::PUT, path).json(&body)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        Answer::of(self.request(Method::POST, path).json(&body)).await
    }

    /// What is there, as soon as it is so.
    pub(crate) async fn until(&self, path: &str, is_so: impl Fn(&Value) -> bool) -> Value {
        loop {
            let found = self.get(path).await.body;
            if is_so(&found) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Waits until it has begun what was sent to it before: it takes connections in the order in which they come.
    pub(crate) async fn catches_up(&self) {
        for _ in 0..10 {
            assert_eq!(self.get("/readyz").await.status, 200);
        }
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> std::net::SocketAddr {
        self.url.strip_prefix("http://").unwrap().parse().unwrap()
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// How many bytes of memory it has at this moment, as Linux counts them.
    pub(crate) fn resident(&self) -> usize {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kibibytes = line.unwrap().trim().strip_suffix(" kB").unwrap();
        kibibytes.parse::<usize>().unwrap() << 10
    }

    /// The id of its process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop, as an operating system does.
    pub(crate) fn terminate(&self) {
        self.signal("-TERM");
    }

    /// Has it read another configuration, and waits until it has; gives what it said of that.
    pub(crate) async fn reload(&self, config: &str) -> String {
        const READ: &str = "the configuration was read again";
        let said = |log: &str| log.lines().filter(|line| line.contains(READ)).count();
        let before = said(&self.log());
        std::fs::write(self.folder.path().join("delayline.toml"), config).unwrap();
        self.signal("-HUP");
        loop {
            let log = self.log();
            if said(&log) > before && log.ends_with('\n') {
                return log.lines().rfind(|line| line.contains(READ)).unwrap().to_owned();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    pub(crate) fn signal(&self, signal: &str) {
        let id = self.process().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &id])
                .status()
                .unwrap()
                .success()
        );
    }

    pub(crate) fn ended(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    /// Kills it, and starts another one with the same file.
    pub(crate) fn killed_and_started(mut self) -> Self {
        self.kill_and_start();
        self
    }

    /// Kills it, and starts another one with the same file in its place.
    pub(crate) fn kill_and_start(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        let folder = std::mem::replace(&mut self.folder, tempfile::tempdir().unwrap());
        *self = Self::of(folder, &["--config", "delayline.toml"]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let mut log = String::new();
            if let Ok(mut file) = std::fs::File::open(self.folder.path().join("log")) {
                let _ = file.read_to_string(&mut log);
            }
            eprintln!("the server's log:\n{log}");
        }
    }
}

/// What came back, to the letter.
pub(crate) async fn text(request: RequestBuilder) -> String {
    request.send().await.unwrap().text().await.unwrap()
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) type_of: String,
    pub(crate) etag: Option<String>,
    pub(crate) body: Value,
}

impl Answer {
    pub(crate) async fn of(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        let header = |name: &str| {
            let value = response.headers().get(name)?;
            Some(value.to_str().unwrap().to_owned())
        };
        assert!(header("x-request-id").is_some(), "each answer names its request");
        let (status, type_of, etag) = (response.status(), header("content-type"), header("etag"));
        let text = response.text().await.unwrap();
        let type_of = type_of.unwrap_or_default();
        let answer = Self {
            status,
            body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
            type_of,
            etag,
        };
        if answer.status.is_client_error() || answer.status.is_server_error() {
            assert_eq!(answer.type_of, "application/problem+json", "{answer:?}");
            assert_eq!(answer.body["status"], answer.status.as_u16(), "{answer:?}");
            assert!(answer.body["detail"].is_string(), "{answer:?}");
        }
        answer
    }

    /// It refuses this, naming the field.
    #[track_caller]
    pub(crate) fn refuses(&self, status: u16, said: &str) {
        let detail = self.body["detail"].as_str().unwrap_or_default();
        assert!(
            self.status.as_u16() == status && detail.contains(said),
            "wanted {status} with {said:?}: {self:?}"
        );
    }

    #[track_caller]
    pub(crate) fn is(&self, status: u16, answer: &str) -> &Value {
        assert!(
            self.status.as_u16() == status && self.body["answer"] == answer,
            "wanted {status} {answer}: {self:?}"
        );
        &self.body["task"]
    }
}
