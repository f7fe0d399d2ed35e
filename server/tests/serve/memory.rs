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
use crate::rights::{ALL, ask, token};
use crate::server::{ANY_PORT, Answer, Server};

const MIB: usize = 1 << 20;

/// A server that holds so many MiB of requests, of which one may have 4.
fn holding(mebibytes: usize) -> Server {
    let limits = format!("body_limit = {}\nmemory_limit = {}\n", 4 * MIB, mebibytes * MIB);
    Server::configured(&format!("{ANY_PORT}{limits}"))
}

/// A connection of which little is under way at once, as far as its client has a say.
pub(crate) async fn connected(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    socket.connect(server.address()).await.unwrap()
}

/// Sends a request with so many bytes of its body, or as many of them as the server reads.
async fn send_all_but(stream: &mut TcpStream, body: usize, sent: usize) {
    let head = format!("PUT /v1/tasks/k/1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: {body}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let body = vec![b' '; sent];
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
            send_all_but(&mut stream, 4 * MIB, 4 * MIB - 1).await;
            stream
        });
    }
    let sent = sending.join_all().await;
    // Of the 256 MiB those of four, for which there is room; twice of each while its buffer grows, and up to half a MiB that
    // has come for each of the others and is not read.
    let grown = server.resident() - before;
    assert!(grown < 128 * MIB, "{grown} bytes more are in memory");
    // Small requests are answered meanwhile, and so are the probes of an orchestrator.
    assert_eq!(server.get("/readyz").await.status, 200);
    let task = json!({"after": "1h"});
    server.put("/v1/tasks/k/1", task.clone()).await.is(201, "new");
    // Those without room are told to come back, and the others that they are too slow.
    let mut reading = tokio::task::JoinSet::new();
    for mut stream in sent {
        reading.spawn(async move {
            let mut answer = [0; 512];
            // What it has sent and the server has not read may reset the connection.
            let length = stream.read(&mut answer).await.unwrap_or(0);
            (stream, String::from_utf8_lossy(&answer[..length]).to_lowercase())
        });
    }
    let (mut let_in, mut refused) = (0, 0);
    for (_stream, answer) in reading.join_all().await {
        match answer
            .strip_prefix("http/1.1 ")
            .and_then(|answer| answer.get(..3))
        {
            Some("408") => let_in += 1,
            Some("503") if answer.contains("retry-after: 1") => refused += 1,
            None => refused += 1,
            Some(_) => panic!("{answer}"),
        }
    }
    assert!(
        let_in > 0 && refused > 0,
        "{let_in} were let in, and {refused} refused"
    );
    let large = json!({"after": "1h", "payload": "x".repeat(MIB - 2)});
    server.put("/v1/tasks/k/2", large).await.is(201, "new");
}

#[tokio::test]
async fn bodies_that_do_not_come_hold_up_no_other_request() {
    let server = holding(16);
    let mut streams = Vec::new();
    for _ in 0..32 {
        let mut stream = connected(&server).await;
        send_all_but(&mut stream, 4 * MIB, 1).await;
        streams.push(stream);
    }
    let large = json!({"after": "0s", "payload": "x".repeat(MIB - 2)});
    server.put("/v1/tasks/k/2", large).await.is(201, "new");
    let given = server
        .post("/v1/claims", json!({"kinds": ["k"], "wait": "30s"}))
        .await;
    let claim = given.body["claims"][0]["claim"].as_str().unwrap();
    let done = format!("/v1/claims/{claim}/done");
    server.post(&done, json!({})).await.is(200, "done");
    let mut stream = connected(&server).await;
    let request = b"POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-length: 20\r\n\r\n{";
    stream.write_all(request).await.unwrap();
    streams.push(stream);
    for mut stream in streams {
        let mut begins = [0; 12];
        stream.read_exact(&mut begins).await.unwrap();
        assert_eq!(&begins, b"HTTP/1.1 408");
    }
}

/// How much more memory a server has by each of so many connections that `open` makes something of.
async fn by_each(
    server: &Server,
    count: usize,
    open: impl AsyncFn(&mut TcpStream),
) -> (usize, Vec<TcpStream>) {
    let before = server.resident();
    let mut streams = Vec::new();
    for _ in 0..count {
        let mut stream = connected(server).await;
        open(&mut stream).await;
        streams.push(stream);
    }
    server.catches_up().await;
    (server.resident().saturating_sub(before) / count, streams)
}

#[tokio::test]
async fn a_connection_has_little_of_memory_however_much_comes_on_it() {
    let server = Server::start();
    let (of_heads, _heads) = by_each(&server, 300, async |stream| {
        let half = format!("GET /healthz HTTP/1.1\r\nx-long: {}", "x".repeat(31 << 10));
        stream.write_all(half.as_bytes()).await.unwrap();
    })
    .await;
    assert!(
        of_heads < 128 << 10,
        "a connection with half a head has {of_heads} bytes"
    );
    let (of_more, _more) = by_each(&server, 100, async |stream| {
        let half = format!("GET /healthz HTTP/1.1\r\nx-long: {}", "x".repeat(400 << 10));
        // The server has closed it by then.
        let _ = stream.write_all(half.as_bytes()).await;
    })
    .await;
    assert!(of_more < 128 << 10, "a connection with more has {of_more} bytes");
    let kinds: Vec<_> = (0..100).map(|kind| format!("{kind:0>100}")).collect();
    let wanted = json!({"kinds": kinds, "wait": "60s"}).to_string();
    let (of_claims, _claims) = by_each(&server, 300, async |stream| {
        let request = format!(
            "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{wanted}",
            wanted.len()
        );
        stream.write_all(request.as_bytes()).await.unwrap();
    })
    .await;
    assert!(
        of_claims < 128 << 10,
        "a request that waits has {of_claims} bytes"
    );
}

#[tokio::test]
async fn events_that_are_not_read_take_little_memory() {
    let server = Server::start();
    let listen = async |stream: &mut TcpStream| {
        let request = b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n";
        stream.write_all(request).await.unwrap();
        stream.read_exact(&mut [0; 12]).await.unwrap();
    };
    let (_, _streams) = by_each(&server, 50, listen).await;
    let header = "x".repeat(8 << 10);
    let tasks: Vec<_> = (0..200)
        .map(|_| json!({"kind": "k", "after": "1h", "headers": {"long": header}}))
        .collect();
    let tasks = json!(tasks);
    let before = server.resident();
    // More than the systems keep for a connection.
    for _ in 0..2 {
        assert_eq!(server.post("/v1/tasks", tasks.clone()).await.status, 200);
    }
    // What they are told goes on behind the answer.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let grown = server.resident().saturating_sub(before);
    // All 50 together have been told of 160 MiB.
    assert!(grown < 64 * MIB, "{grown} bytes more are in memory");
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
async fn claims_whose_answers_are_not_read_keep_others_waiting() {
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
async fn claims_whose_answers_are_not_read_by_one_token_keep_no_other_waiting() {
    let limits = format!("body_limit = {}\nmemory_limit = {}\n", 4 * MIB, 16 * MIB);
    let tokens = format!("tokens = [{}, {}]\n", token("idle", ALL), token("other", ALL));
    let server = Server::configured(&format!("{ANY_PORT}{limits}{tokens}"));
    let payload = "x".repeat(MIB - 2);
    for key in 0..20 {
        let task = json!({"after": "0s", "payload": payload});
        let path = format!("/v1/tasks/k/{key}");
        let put = ask(&server, "other", Method::PUT, &path, task).await;
        put.is(201, "new");
    }
    let wanted = json!({"kinds": ["k"], "max": 500, "lease": "1h"});
    let text = wanted.to_string();
    let mut idle = connected(&server).await;
    let request = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer idle\r\ncontent-length: {}\r\n\r\n{text}",
        text.len()
    );
    idle.write_all(request.as_bytes()).await.unwrap();
    // Its answer has begun, and is on its way.
    idle.read_exact(&mut [0; 12]).await.unwrap();
    let claim = async |by: &str| ask(&server, by, Method::POST, "/v1/claims", wanted.clone()).await;
    claim("idle").await.refuses(503, "http.memory_limit");
    let given = claim("other").await;
    assert_eq!(
        given.body["claims"].as_array().map(Vec::len),
        Some(8),
        "{}",
        given.status
    );
    claim("idle").await.refuses(503, "http.memory_limit");
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
async fn what_shows_no_payloads_reads_none() {
    let server = holding(16);
    schedule(&server, 200).await;
    let before = server.resident();
    for path in ["/tasks?kind=k&q=none", "/tasks?kind=k&state=scheduled&q=none"] {
        let page = server.request(Method::GET, path).send().await.unwrap();
        assert_eq!(page.status(), 200, "{path}");
    }
    let none = json!({"filter": {"kind": "k", "key_prefix": "none"}, "dry_run": true});
    let counted = server.post("/v1/tasks:cancel", none).await;
    assert_eq!(counted.body, json!({"matched": 0, "more": false}));
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 64 * MIB, "{grown} bytes more are in memory");
}

#[tokio::test]
async fn a_request_that_may_wait_brings_no_more_than_it_needs() {
    let server = Server::start();
    let kinds = vec!["k".repeat(100); 1_000];
    for (path, body) in [
        ("/v1/claims", json!({"kinds": kinds})),
        ("/v1/claims:done", json!({"claims": kinds})),
        ("/v1/time/advance", json!({"by": " ".repeat(100 << 10)})),
    ] {
        server.post(path, body).await.refuses(
            413,
            "than the 64 KiB of /v1/claims, /v1/claims:done and /v1/time/advance",
        );
    }
}

#[tokio::test]
async fn an_array_of_more_tasks_than_are_allowed_is_not_read_to_its_end() {
    let server = Server::start();
    let of = async |count: usize| {
        let request = server.request(Method::POST, "/v1/tasks");
        let body = format!("[{}{{}}]", "{},".repeat(count - 1));
        Answer::of(request.header("content-type", "application/json").body(body)).await
    };
    let before = server.resident();
    let refused = of((15 * MIB) / 3).await;
    // Else its answer is too long to be shown.
    assert_eq!(refused.status, 400);
    refused.refuses(
        400,
        "invalid length 10001, expected an array of up to 10000 tasks",
    );
    let grown = server.resident().saturating_sub(before);
    // The body, and twice of it while it came.
    assert!(grown < 64 * MIB, "{grown} bytes more are in memory");
    let answered = of(10_000).await.body;
    let answered = answered.as_array().unwrap();
    assert!(answered.len() == 10_000 && answered[9_999]["field"] == "after");
}

#[tokio::test]
async fn an_array_that_finds_a_large_task_a_thousand_times_does_not_hold_it_as_often() {
    let server = Server::start();
    schedule(&server, 1).await;
    let task = json!({"kind": "k", "key": "0", "after": "1h"});
    let before = server.resident();
    let answers = server.post("/v1/tasks", json!(vec![task; 1_000])).await.body;
    let answers = answers.as_array().unwrap();
    assert_eq!(answers.len(), 1_000);
    for each in answers {
        assert_eq!(each["answer"], "existing");
        assert!(each["task"].get("payload").is_none() && each["task"]["key"] == "0");
    }
    let grown = server.resident().saturating_sub(before);
    assert!(grown < 400 * MIB, "{grown} bytes more are in memory");
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
    // None is given up while the others are scheduled, which takes a busy machine longer than the 15 s of a webhook.
    let kind = format!(
        "[kinds.k]\ndeliver = {{ url = \"{}\", secret = \"{secret}\" }}\nconcurrency = 500\nexecution_timeout = \"1h\"\n",
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
