//! The programs of `examples/clients`, which know nothing but HTTP.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::json;
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use crate::server::{ANY_PORT, Server};

/// A language, with what its programs need to be run.
enum Client {
    Python,
    Go(TempDir),
    Java,
}

fn examples() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../examples/clients")
}

impl Client {
    /// Go's are built first: what runs them would not end them.
    async fn go() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut go = Command::new("go");
        go.args(["build", "-o"])
            .arg(folder.path())
            .args(["./shop", "./worker"]);
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

    fn command(&self, program: &str) -> Command {
        match self {
            Self::Python => {
                let mut command = Command::new("python3");
                command.env("PYTHONDONTWRITEBYTECODE", "1");
                command.arg(examples().join("python").join(format!("{program}.py")));
                command
            }
            Self::Go(folder) => Command::new(folder.path().join(program)),
            Self::Java => {
                let mut command = Command::new("java");
                command.arg(examples().join("java/Shop.java"));
                command
            }
        }
    }
}

/// What a shop prints that has a server of its own.
async fn shop(client: Client) -> String {
    let server = Server::start();
    let mut command = client.command("shop");
    command.arg(&server.url);
    let shop = spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(shop.status.success(), "{}", String::from_utf8_lossy(&shop.stderr));
    String::from_utf8(shop.stdout).unwrap()
}

#[tokio::test]
async fn a_shop_in_python_schedules_moves_and_cancels() {
    let expected =
        "new scheduled\nexisting\ndone later\ndone\nfinished\ncancelled\nnot_found None\nrefused: 400\n";
    assert_eq!(shop(Client::Python).await, expected);
}

#[tokio::test]
async fn a_shop_in_go_schedules_moves_and_cancels() {
    let expected = "new scheduled\nexisting\ndone 10m0s\ndone\nfinished cancelled\nnot_found\nrefused: 400\n";
    assert_eq!(shop(Client::go().await).await, expected);
}

#[tokio::test]
async fn a_shop_in_java_schedules_moves_cancels_and_works() {
    let expected = "201 new\n200 existing\n200 done\n200 done\n409 finished\n404 not_found\nbuilt sales\n200 done\n409 lost\n";
    assert_eq!(shop(Client::Java).await, expected);
}

/// A program that goes on, and ends with its test.
struct Program {
    process: Child,
    said: Option<BufReader<ChildStdout>>,
}

impl Program {
    fn start(mut command: Command) -> Self {
        let mut process = command.stdout(Stdio::piped()).spawn().unwrap();
        let said = process.stdout.take().map(BufReader::new);
        Self { process, said }
    }

    fn worker(client: &Client, server: &Server) -> Self {
        let mut command = client.command("worker");
        command.args([&server.url, "report.build"]);
        Self::start(command)
    }

    /// The next line that it says.
    async fn says(&mut self) -> String {
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
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// It builds what is due, and tries again what failed, as often as it may.
async fn works(client: Client) {
    let server = Server::start();
    let mut worker = Program::worker(&client, &server);
    let report = json!({"after": "200ms", "payload": {"name": "sales"}});
    server
        .put("/v1/tasks/report.build/1", report)
        .await
        .is(201, "new");
    assert_eq!(worker.says().await, "built sales");
    let bad = json!({"after": "0s", "payload": {"impossible": true}, "max_attempts": 1});
    server.put("/v1/tasks/report.build/2", bad).await.is(201, "new");
    let dead = server
        .until("/v1/tasks/report.build/2", |task| task["state"] == "dead")
        .await;
    assert_eq!(dead["last_error"], "such a report cannot be built");
    server
        .until("/v1/tasks/report.build/1", |task| task["state"] == "done")
        .await;
}

#[tokio::test]
async fn a_worker_in_python_builds_what_is_due() {
    works(Client::Python).await;
}

#[tokio::test]
async fn a_worker_in_go_builds_what_is_due() {
    works(Client::go().await).await;
}

#[tokio::test]
async fn what_a_killed_worker_had_is_given_to_the_next() {
    let server = Server::start();
    let report = json!({"after": "0s", "payload": {"name": "slow", "seconds": 600}});
    server
        .put("/v1/tasks/report.build/1", report)
        .await
        .is(201, "new");
    let mut first = Program::worker(&Client::Python, &server);
    server
        .until("/v1/tasks/report.build/1", |task| task["state"] == "running")
        .await;
    first.process.kill().unwrap();
    let wanted = json!({"kinds": ["report.build"], "wait": "60s"});
    let given = server.post("/v1/claims", wanted).await;
    let claim = given.body["claims"][0]["claim"].as_str().unwrap();
    server
        .post(&format!("/v1/claims/{claim}/done"), json!({}))
        .await
        .is(200, "done");
}

#[tokio::test]
async fn a_receiver_in_python_does_what_is_signed_and_once() {
    let (secret, other) = (
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD",
    );
    let mut command = Client::Python.command("webhook");
    command.arg("0").env("HOOK_SECRET", secret);
    let mut receiver = Program::start(command);
    let said = receiver.says().await;
    let url = said.strip_prefix("receiving at ").unwrap();
    let kind = |name: &str, secret: &str| {
        format!("[kinds.{name}]\ndeliver = {{ url = \"{url}\", secret = {secret} }}\nattempts = 1\n")
    };
    let server = Server::configured(&format!(
        "{ANY_PORT}[webhooks]\nallow = [\"127.0.0.1\"]\n{}{}",
        kind("remind", &format!("[\"{other}\", \"{secret}\"]")),
        kind("forged", &format!("\"{other}\"")),
    ));
    let schedule = async |path: &str, payload: serde_json::Value| {
        let task = json!({"after": "0s", "payload": payload});
        server.put(path, task).await.is(201, "new");
    };
    schedule("/v1/tasks/remind/7", json!({"invoice": "für 7"})).await;
    assert_eq!(receiver.says().await, "reminded of für 7");
    server
        .until("/v1/tasks/remind/7", |task| task["state"] == "done")
        .await;
    for (path, error) in [
        ("/v1/tasks/forged/7", "answered 401 Unauthorized: not signed"),
        (
            "/v1/tasks/remind/8",
            "answered 500 Internal Server Error: 'invoice'",
        ),
    ] {
        schedule(path, json!({"invoices": 0})).await;
        let dead = server.until(path, |task| task["state"] == "dead").await;
        assert_eq!(dead["last_error"], error);
    }
}
