//! Memory is bounded, whatever comes at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};

use crate::receiver::Receiver;
use crate::server::{ANY_PORT, Answer, Server};

const MIB: usize = 1 << 20;

/// A server that holds so many MiB of requests, of which one may have 4.
fn holding(mebibytes: usize) -> Server {
    let limits = format!("body_limit = {}\nmemory_limit = {}\n", 4 * MIB, mebibytes * MIB);
    Server::configured(&format!("{ANY_PORT}{limits}"))
}

/// A connection of which little is under way at once, as far as its client has a say.
async fn connected(server: &Server) -> TcpStream {
    let address = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(address).await.unwrap()
}

/// Sends a request without the last byte of its body, or as much of it as the server reads.
async fn send_all_but_a_byte(stream: &mut TcpStream, body: usize) {
    let head = format!("PUT /v1/tasks/k/1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {body}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let body = vec![b' '; body - 1];
    // The server has not begun to refuse by then.
    let _ = tokio::time::timeout(Duration::from_secs(2), stream.write_all(&body)).await;
}

#[tokio::test]
async fn bodies_that_come_at_once_are_read_as_far_as_there_is_room() {
    let server = holding(16);
    let before = server.resident();
    let mut streams = Vec::new();
    for _ in 0..64 {
        streams.push(connected(&server).await);
    }
    let mut sending = tokio::task::JoinSet::new();
    for mut stream in streams {
        sending.spawn(async move {
            send_all_but_a_byte(&mut stream, 4 * MIB).await;
            stream
        });
    }
    let sent = sending.join_all().await;
    // Of the 256 MiB those of four, for which there is room, and what their buffers have grown by beyond it.
    let grown = server.resident() - before;
    assert!(grown < 64 * MIB, "{grown} bytes more are in memory");
    // The others are told to come back, and who looks after the process is answered.
    assert_eq!(server.get("/readyz").await.status, 200);
    let mut reading = tokio::task::JoinSet::new();
    for mut stream in sent {
        reading.spawn(async move {
            let mut answer = [0; 512];
            let read = tokio::time::timeout(Duration::from_secs(8), stream.read(&mut answer)).await;
            let answer =
                read.map(|length| String::from_utf8_lossy(&answer[..length.unwrap()]).to_lowercase());
            (stream, answer)
        });
    }
    let (mut let_in, mut refused) = (Vec::new(), 0);
    for (stream, answer) in reading.join_all().await {
        match answer {
            Err(_) => let_in.push(stream),
            Ok(answer) => {
                assert!(
                    answer.starts_with("http/1.1 503") && answer.contains("retry-after: 1"),
                    "{answer}"
                );
                refused += 1;
            }
        }
    }
    assert_eq!((let_in.len(), refused), (4, 60));
    server
        .get("/v1/tasks/k/1")
        .await
        .refuses(503, "http.memory_limit");
    drop(let_in);
    let there_is_room = json!({"after": "1h"});
    server.put("/v1/tasks/k/1", there_is_room).await.is(201, "new");
}

/// Schedules so many tasks of a MiB for now.
async fn schedule(server: &Server, count: usize) {
    let payload = "x".repeat(MIB - 2);
    for key in 0..count {
        let task = json!({"after": "0s", "payload": payload});
        server
            .put(&format!("/v1/tasks/k/{key}"), task)
            .await
            .is(201, "new");
    }
}

#[tokio::test]
async fn claims_whose_answers_nobody_reads_keep_others_waiting() {
    let server = holding(16);
    schedule(&server, 20).await;
    let wanted = json!({"kinds": ["k"], "max": 500, "lease": "1h"}).to_string();
    let mut idle = connected(&server).await;
    let request = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{wanted}",
        wanted.len()
    );
    idle.write_all(request.as_bytes()).await.unwrap();
    let running = "/v1/tasks?kind=k&state=running&limit=1";
    server.until(running, |list| list["tasks"][0].is_object()).await;
    for wait in ["0s", "500ms"] {
        let wanted = json!({"kinds": ["k"], "max": 500, "lease": "1h", "wait": wait});
        let answer = server.post("/v1/claims", wanted).await;
        answer.refuses(503, "http.memory_limit");
    }
    drop(idle);
    let wanted = json!({"kinds": ["k"], "max": 500, "lease": "1h", "wait": "30s"});
    let rest = server.post("/v1/claims", wanted).await;
    assert_eq!(rest.body["claims"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_page_of_large_payloads_is_shorter() {
    let server = Server::start();
    schedule(&server, 20).await;
    let mut keys = Vec::new();
    let mut search = "/v1/tasks?kind=k&limit=500".to_owned();
    let mut pages = Vec::new();
    loop {
        let page = server.get(&search).await.body;
        let tasks = page["tasks"].as_array().unwrap();
        pages.push(tasks.len());
        keys.extend(tasks.iter().map(|task| task["key"].as_str().unwrap().to_owned()));
        let Some(cursor) = page["cursor"].as_str() else {
            break;
        };
        search = format!("/v1/tasks?kind=k&limit=500&cursor={cursor}");
    }
    keys.sort();
    keys.dedup();
    assert_eq!((keys.len(), &pages[..]), (20, &[16, 4][..]));
}

#[tokio::test]
async fn a_claim_brings_no_more_than_a_claim_needs() {
    let server = Server::start();
    let kinds = vec!["k".repeat(100); 1_000];
    let request = server
        .request(Method::POST, "/v1/claims")
        .json(&json!({"kinds": kinds}));
    Answer::of(request)
        .await
        .refuses(413, "of a claim allowed are 64 KiB");
}

/// How many requests wait for a receiver, and the most that ever did.
#[derive(Default)]
struct Waiting {
    now: AtomicUsize,
    most: AtomicUsize,
}

/// One of them, until it is answered or given up.
struct Waits(Arc<Waiting>);

impl Waits {
    fn one_more(waiting: &Arc<Waiting>) -> Self {
        let now = waiting.now.fetch_add(1, Ordering::Relaxed) + 1;
        waiting.most.fetch_max(now, Ordering::Relaxed);
        Self(Arc::clone(waiting))
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::Relaxed);
    }
}

#[tokio::test]
async fn what_waits_for_a_slow_receiver_is_not_all_in_memory() {
    let waiting = Arc::new(Waiting::default());
    let never = {
        let waiting = Arc::clone(&waiting);
        move |_| {
            let waits = Waits::one_more(&waiting);
            async move {
                std::future::pending::<()>().await;
                drop(waits);
                StatusCode::NO_CONTENT.into_response()
            }
        }
    };
    let receiver = Receiver::start(never).await;
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let kind = format!(
        "[kinds.k]\ndeliver = {{ url = \"{}\", secret = \"{secret}\" }}\nconcurrency = 500\n",
        receiver.url()
    );
    let server = Server::configured(&format!("{ANY_PORT}[webhooks]\nallow = [\"127.0.0.1\"]\n{kind}"));
    let before = server.resident();
    schedule(&server, 90).await;
    // Of a worker's 64 MiB, and a task more for each call of the store that was under way.
    while waiting.most.load(Ordering::Relaxed) < 60 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // Were there no limit, the rest would come now.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let (most, grown) = (waiting.most.load(Ordering::Relaxed), server.resident() - before);
    assert!(
        most < 75 && grown < 400 * MIB,
        "{most} were waiting, in {grown} bytes more"
    );
}
