//! Connections: how many there may be, and how little those hold up on which nothing comes.

use std::process::Command;
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::receiver::Receiver;
use crate::server::{ANY_PORT, Server};

/// A server that may have so many files open, as `ulimit` has it.
fn limited(ulimit: &str, config: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("delayline.toml"), config).unwrap();
    let mut command = Command::new("sh");
    command.current_dir(folder.path()).env_remove("RUST_LOG");
    let serve = format!(
        "ulimit {ulimit}; exec {:?} serve --config delayline.toml",
        env!("CARGO_BIN_EXE_delayline")
    );
    command.args(["-c", &serve]);
    Server::run(folder, command)
}

async fn connected(server: &Server) -> TcpStream {
    TcpStream::connect(server.address()).await.unwrap()
}

#[tokio::test]
async fn connections_on_which_nothing_comes_keep_no_caller_out() {
    let server = limited("-n 128", ANY_PORT);
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(connected(&server).await);
    }
    let task = json!({"after": "1h"});
    server.put("/v1/tasks/k/1", task.clone()).await.is(201, "new");
    // As many whose requests have begun.
    for _ in 0..300 {
        let mut half = connected(&server).await;
        // It may be closed by now.
        let _ = half.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await;
        silent.push(half);
    }
    server.put("/v1/tasks/k/2", task).await.is(201, "new");
    assert_eq!(server.get("/readyz").await.status, 200);
    let log = server.log();
    assert!(
        log.contains("fewer connections than http.connection_limit"),
        "{log}"
    );
    assert!(!log.contains("accept error"), "{log}");
}

#[tokio::test]
async fn requests_that_wait_leave_connections_for_others() {
    let server = Server::configured(&format!("{ANY_PORT}connection_limit = 8\n"));
    let wanted = json!({"kinds": ["k"], "wait": "60s"}).to_string();
    let request = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{wanted}",
        wanted.len()
    );
    let mut waiting = Vec::new();
    for _ in 0..7 {
        let mut stream = connected(&server).await;
        stream.write_all(request.as_bytes()).await.unwrap();
        waiting.push(stream);
    }
    let mut answers = tokio::task::JoinSet::new();
    for mut stream in waiting {
        answers.spawn(async move {
            let mut begins = [0; 12];
            stream.read_exact(&mut begins).await.unwrap();
            (begins, stream)
        });
    }
    // Six may wait, and one is told so.
    let (first, _stream) = answers.join_next().await.unwrap().unwrap();
    assert_eq!(&first, b"HTTP/1.1 503");
    assert_eq!(server.get("/readyz").await.status, 200);
    assert!(answers.try_join_next().is_none());
}

#[tokio::test]
async fn the_limit_of_open_files_is_raised_as_far_as_it_may_be() {
    let server = limited("-S -n 64", ANY_PORT);
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", server.process())).unwrap();
    let files = limits.lines().find(|line| line.starts_with("Max open files"));
    let numbers: Vec<_> = files.unwrap().split_whitespace().skip(3).collect();
    assert!(numbers[0] == numbers[1] && numbers[0] != "64", "{numbers:?}");
}

#[tokio::test]
async fn what_the_server_itself_is_short_of_costs_a_webhook_no_attempt() {
    let answer = |_| async {
        tokio::time::sleep(Duration::from_millis(500)).await;
        StatusCode::NO_CONTENT.into_response()
    };
    let receiver = Receiver::start(answer).await;
    let kind = format!(
        "[webhooks]\nallow = [\"127.0.0.1\"]\n[kinds.k]\ndeliver = {{ url = {:?}, secret = {:?} }}\nattempts = 1\n\
         concurrency = 200\n",
        receiver.url(),
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    );
    let server = limited("-n 64", &format!("{ANY_PORT}{kind}"));
    let tasks: Vec<_> = (0..200)
        .map(|key| json!({"kind": "k", "key": key.to_string(), "after": "0s"}))
        .collect();
    assert_eq!(server.post("/v1/tasks", json!(tasks)).await.status, 200);
    for state in ["scheduled", "running"] {
        let left = format!("/v1/tasks?kind=k&state={state}&limit=1");
        server.until(&left, |list| list["tasks"] == json!([])).await;
    }
    let dead = server.get("/v1/tasks?kind=k&state=dead").await.body;
    assert_eq!(dead["tasks"], json!([]));
    assert!(server.log().contains("short of sockets"), "there were enough");
}

#[tokio::test]
async fn a_head_that_does_not_end_does_not_keep_a_server_from_ending() {
    let mut server = Server::start();
    let mut half = connected(&server).await;
    half.write_all(b"GET /healthz HTTP/1.1\r\nhost: ").await.unwrap();
    // It has come when what came after it is answered.
    assert_eq!(server.get("/healthz").await.status, 200);
    server.terminate();
    let (ended, server) = tokio::task::spawn_blocking(move || (server.ended(), server))
        .await
        .unwrap();
    let log = server.log();
    assert!(ended.success() && !log.contains("stop timeout"), "{log}");
}

#[tokio::test]
async fn only_http_1_is_spoken() {
    let server = Server::start();
    let mut stream = connected(&server).await;
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    stream.write_all(preface).await.unwrap();
    let mut answer = [0; 12];
    // It may be reset.
    let length = stream.read(&mut answer).await.unwrap_or(0);
    assert!(length == 0 || answer.starts_with(b"HTTP/1.1 4"), "{answer:?}");
    let mut stream = connected(&server).await;
    let head = format!(
        "GET /healthz HTTP/1.1\r\nx-long: {}\r\n\r\n",
        "x".repeat(64 << 10)
    );
    let _ = stream.write_all(head.as_bytes()).await;
    let mut answer = [0; 12];
    if stream.read_exact(&mut answer).await.is_ok() {
        assert_eq!(&answer, b"HTTP/1.1 431");
    }
}
