//! Tasks that are posted to a URL when they are due.

use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::{IntoResponse as _, Response};
use delayline::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::receiver::Receiver;
use crate::server::{ANY_PORT, Answer, Server, check, command};

const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OTHER: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oDd8Zy2Wd8ReY=";

/// A server that posts the tasks of a kind to `url`; `more` is said of that kind.
fn posting(url: &str, more: &str) -> Server {
    let allow = "[webhooks]\nallow = [\"127.0.0.1\"]\n";
    let kind = format!("[kinds.k]\ndeliver = {{ url = \"{url}\", secret = \"{SECRET}\" }}\n{more}");
    Server::configured(&format!("{ANY_PORT}{allow}{kind}"))
}

async fn schedule(server: &Server, key: &str, payload: Value) {
    let task = json!({"after": "0s", "payload": payload});
    server
        .put(&format!("/v1/tasks/k/{key}"), task)
        .await
        .is(201, "new");
}

/// The task, once it is in this state.
async fn task_that_is(server: &Server, key: &str, state: &str) -> Value {
    let path = format!("/v1/tasks/k/{key}");
    server.until(&path, |task| task["state"] == state).await
}

/// Why a task could not be delivered.
async fn last_error(server: &Server, key: &str) -> String {
    let dead = task_that_is(server, key, "dead").await;
    dead["last_error"].as_str().unwrap().to_owned()
}

async fn done(_: usize) -> Response {
    StatusCode::NO_CONTENT.into_response()
}

#[tokio::test]
async fn what_is_due_is_posted_and_signed() {
    let mut receiver = Receiver::start(done).await;
    let server = posting(&receiver.url(), "");
    let body = r#"{"after":"0s","payload":{"b": 1,  "a":[2]},"headers":{"traceparent":"00-1-2-01"}}"#;
    let request = server.request(Method::PUT, "/v1/tasks/k/invoice%2F7");
    let request = request.header("content-type", "application/json").body(body);
    let scheduled = Answer::of(request).await.is(201, "new").clone();
    let received = receiver.next().await;
    assert!(
        received.is_signed_with(SECRET) && !received.is_signed_with(OTHER),
        "{received:?}"
    );
    assert_eq!(received.body, r#"{"b": 1,  "a":[2]}"#);
    assert_eq!(received.path, "/hooks");
    for (name, expected) in [
        ("content-type", "application/json"),
        ("delayline-task-id", scheduled["id"].as_str().unwrap()),
        ("delayline-kind", "k"),
        ("delayline-key", "invoice/7"),
        ("delayline-attempt", "1"),
        ("delayline-due-at", scheduled["due_at"].as_str().unwrap()),
        ("delayline-header-traceparent", "00-1-2-01"),
    ] {
        assert_eq!(received.header(name), Some(expected), "{name}");
    }
    assert!(received.header("user-agent").unwrap().starts_with("delayline/"));
    task_that_is(&server, "invoice%2F7", "done").await;
    assert!(receiver.is_empty());
}

#[tokio::test]
async fn what_failed_is_posted_again_as_the_same() {
    let mut receiver = Receiver::start(async |before| match before {
        0 => (StatusCode::INTERNAL_SERVER_ERROR, "no\r\npaper").into_response(),
        before => done(before).await,
    })
    .await;
    let server = posting(&receiver.url(), "");
    schedule(&server, "1", json!(1)).await;
    let (first, second) = (receiver.next().await, receiver.next().await);
    assert!(first.is_signed_with(SECRET) && second.is_signed_with(SECRET));
    assert_eq!(first.header("webhook-id"), second.header("webhook-id"));
    let attempts = [&first, &second].map(|received| received.header("delayline-attempt"));
    assert_eq!(attempts, [Some("1"), Some("2")]);
    task_that_is(&server, "1", "done").await;
}

#[tokio::test]
async fn what_was_replaced_meanwhile_is_no_repeat() {
    let mut receiver = Receiver::start(async |before| match before {
        // Its answer is as good as lost.
        0 => (StatusCode::INTERNAL_SERVER_ERROR, [("retry-after", "3600")], "").into_response(),
        before => done(before).await,
    })
    .await;
    let server = posting(&receiver.url(), "");
    schedule(&server, "1", json!("first")).await;
    let first = receiver.next().await;
    server
        .until("/v1/tasks/k/1", |task| task["last_error"].is_string())
        .await;
    let edit = json!({"payload": "second", "after": "0s"});
    server.post("/v1/tasks/k/1/edit", edit).await.is(200, "done");
    let second = receiver.next().await;
    assert_eq!(second.body, "\"second\"");
    assert!(second.is_signed_with(SECRET));
    assert_eq!(
        first.header("delayline-task-id"),
        second.header("delayline-task-id")
    );
    assert_ne!(first.header("webhook-id"), second.header("webhook-id"));
    task_that_is(&server, "1", "done").await;
}

#[tokio::test]
async fn a_receiver_that_is_gone_is_not_asked_again() {
    let mut receiver = Receiver::start(async |_| (StatusCode::GONE, "no such shop").into_response()).await;
    let server = posting(&receiver.url(), "");
    schedule(&server, "1", json!(1)).await;
    assert_eq!(last_error(&server, "1").await, "answered 410 Gone: no such shop");
    receiver.next().await;
    assert!(receiver.is_empty());
}

#[tokio::test]
async fn a_receiver_says_when_to_come_back() {
    let receiver = Receiver::start(async |_| {
        let retry_after = [("retry-after", "3600")];
        (StatusCode::TOO_MANY_REQUESTS, retry_after, "slowly").into_response()
    })
    .await;
    let server = posting(&receiver.url(), "");
    schedule(&server, "1", json!(1)).await;
    let failed = |task: &Value| task["last_error"] == "answered 429 Too Many Requests: slowly";
    let task = server.until("/v1/tasks/k/1", failed).await;
    assert_eq!(
        (&task["state"], &task["attempt"]),
        (&json!("scheduled"), &json!(1))
    );
    let time = |field: &str| task[field].as_str().unwrap().parse::<Timestamp>().unwrap();
    // And up to a second, the first pause of the kind.
    let wait = time("due_at").millis_since(time("updated_at"));
    assert!((3_600_000..=3_601_000).contains(&wait), "{task}");
}

#[tokio::test]
async fn a_redirect_is_a_failure() {
    for status in [StatusCode::FOUND, StatusCode::TEMPORARY_REDIRECT] {
        let redirect = move |_| ready((status, [("location", "/elsewhere")]).into_response());
        let mut receiver = Receiver::start(redirect).await;
        let server = posting(&receiver.url(), "attempts = 1");
        schedule(&server, "1", json!(1)).await;
        assert_eq!(last_error(&server, "1").await, format!("answered {status}"));
        assert_eq!(receiver.next().await.path, "/hooks");
        assert!(receiver.is_empty());
    }
}

#[tokio::test]
async fn a_name_of_a_private_address_is_not_reached_unless_it_is_allowed() {
    let mut receiver = Receiver::start(done).await;
    let port = receiver.port;
    let kind = format!(
        "[kinds.k]\ndeliver = {{ url = \"http://localhost:{port}/\", secret = \"{SECRET}\" }}\nattempts = 1\n"
    );
    let server = Server::configured(&format!("{ANY_PORT}[webhooks]\nallow = [\"10.0.0.7\"]\n{kind}"));
    schedule(&server, "1", json!(1)).await;
    let refused = last_error(&server, "1").await;
    assert!(
        refused.starts_with("no answer: localhost is at ")
            && refused.contains("a loopback address: allowed is that if webhooks.allow has \"localhost\""),
        "{refused}"
    );
    assert!(receiver.is_empty());
    for allowed in ["localhost", "127.0.0.1"] {
        let allow = format!("[webhooks]\nallow = [\"{allowed}\"]\n");
        let server = Server::configured(&format!("{ANY_PORT}{allow}{kind}"));
        schedule(&server, "1", json!(1)).await;
        receiver.next().await;
        task_that_is(&server, "1", "done").await;
    }
}

#[test]
fn a_private_address_in_a_url_is_refused_at_the_start() {
    let kind =
        format!("[kinds.k]\ndeliver = {{ url = \"http://169.254.169.254/\", secret = \"{SECRET}\" }}\n");
    let refused = check(&kind);
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        said.starts_with("delayline: delayline.toml line 2: ") && said.contains("a link-local address"),
        "{said}"
    );
    assert!(
        check(&format!("[webhooks]\nallow = [\"169.254.169.254\"]\n{kind}"))
            .status
            .success()
    );
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_not_used() {
    let receiver = Receiver::start(done).await;
    let url = receiver.url();
    let folder = tempfile::tempdir().unwrap();
    let config = format!(
        "{ANY_PORT}[webhooks]\nallow = [\"127.0.0.1\"]\n[kinds.k]\ndeliver = {{ url = \"{url}\", secret = \"{SECRET}\" }}\nattempts = 1\n"
    );
    std::fs::write(folder.path().join("c"), config).unwrap();
    let mut command = command(folder.path());
    command
        .args(["--config", "c"])
        .env_remove("NO_PROXY")
        .env_remove("no_proxy");
    for name in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"] {
        command.env(name, "http://127.0.0.1:1");
    }
    let server = Server::run(folder, command);
    schedule(&server, "1", json!(1)).await;
    let ended = |task: &Value| !task["finished_at"].is_null();
    let task = server.until("/v1/tasks/k/1", ended).await;
    assert_eq!(task["state"], "done", "{task}");
}

#[tokio::test]
async fn while_a_secret_is_replaced_both_sign() {
    let mut receiver = Receiver::start(done).await;
    let url = receiver.url();
    let server = Server::configured(&format!(
        "{ANY_PORT}[webhooks]\nallow = [\"127.0.0.1\"]\n[kinds.k.deliver]\nurl = \"{url}\"\nsecret = [\"{OTHER}\", \"{SECRET}\"]\n"
    ));
    schedule(&server, "1", json!(1)).await;
    let received = receiver.next().await;
    assert_eq!(
        received.header("webhook-signature").unwrap().split(' ').count(),
        2
    );
    assert!(received.is_signed_with(SECRET) && received.is_signed_with(OTHER));
}

#[tokio::test]
async fn an_answer_without_end_is_not_read_to_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = posting(&url, "attempts = 1");
    schedule(&server, "1", json!(1)).await;
    let (mut stream, _) = listener.accept().await.unwrap();
    let _ = stream.read(&mut [0; 4_096]).await.unwrap();
    stream
        .write_all(b"HTTP/1.1 500 Oh\r\nconnection: keep-alive\r\n\r\n")
        .await
        .unwrap();
    // Until the server reads no more; beside what it reads there is what the systems keep under way.
    let mut written = 0;
    while stream.write_all(&[b'x'; 1_024]).await.is_ok() {
        written += 1;
        assert!(written < 64 << 10, "64 MiB have been read, or wait to be");
    }
    let expected = format!("answered 500 Internal Server Error: {}", "x".repeat(200));
    assert_eq!(last_error(&server, "1").await, expected);
}

#[tokio::test]
async fn a_slow_receiver_is_given_no_more_at_once_than_its_kind_allows() {
    let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let seen = Arc::clone(&most);
    let receiver = Receiver::start(move |before| {
        let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
        async move {
            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(300)).await;
            at_once.fetch_sub(1, Ordering::SeqCst);
            done(before).await
        }
    })
    .await;
    let server = posting(&receiver.url(), "concurrency = 2");
    let task = |key: usize| json!({"kind": "k", "key": format!("{key}"), "after": "0s"});
    let tasks: Vec<_> = (0..6).map(task).collect();
    server.post("/v1/tasks", json!(tasks)).await;
    for key in 0..6 {
        task_that_is(&server, &key.to_string(), "done").await;
    }
    assert_eq!(seen.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn no_secret_is_told() {
    let receiver = Receiver::start(async |_| {
        let said = format!("this is not signed with {SECRET}");
        (StatusCode::UNAUTHORIZED, said).into_response()
    })
    .await;
    // As frameworks do with a path that they do not know.
    let unrouted = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let unrouted_at = unrouted.local_addr().unwrap();
    let says = async |uri: Uri| (StatusCode::NOT_FOUND, format!("Cannot POST {uri}"));
    let router = Router::new().fallback(says);
    let unrouted = tokio::spawn(async move { axum::serve(unrouted, router).await.unwrap() });
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let kind = |name: &str, url: &str| {
        let deliver = format!("{{ url = \"{url}?token=${{HOOK_TOKEN}}\", secret = \"${{HOOK_SECRET}}\" }}");
        format!("[kinds.{name}]\ndeliver = {deliver}\nattempts = 1\n")
    };
    let config = [
        ANY_PORT,
        "[webhooks]\nallow = [\"127.0.0.1\"]\n",
        &kind("answered", &receiver.url()),
        &kind("unrouted", &format!("http://{unrouted_at}/hooks/${{HOOK_PATH}}")),
        &kind("closed", &format!("http://{closed}/")),
        &kind("unknown", "http://nowhere.invalid/"),
    ]
    .concat();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("c"), config).unwrap();
    let mut command = command(folder.path());
    command.args(["--config", "c"]).env("RUST_LOG", "trace");
    command.env("HOOK_SECRET", SECRET).env("HOOK_TOKEN", "hunter2");
    // Of which the beginning alone would be no secret that is known.
    command.env("HOOK_PATH", format!("T0/XoP42pQ9{}", "x".repeat(4_000)));
    let server = Server::run(folder, command);
    for (kind, reason) in [
        (
            "answered",
            "answered 401 Unauthorized: this is not signed with whsec_…",
        ),
        ("unrouted", "answered 404 Not Found: Cannot POST …"),
        ("closed", "no answer: Connection refused"),
        // It may take a name server longer than it is waited for.
        ("unknown", "no answer"),
    ] {
        let path = format!("/v1/tasks/{kind}/1");
        server.put(&path, json!({"after": "0s"})).await.is(201, "new");
        let dead = server.until(&path, |task| task["state"] == "dead").await;
        let said = dead["last_error"].as_str().unwrap();
        assert!(said.starts_with(reason) && !said.contains("hunter2"), "{said}");
        assert!(!said.contains("XoP42pQ9"), "{said}");
    }
    unrouted.abort();
    let log = server.log();
    assert!(log.contains("a task is dead"), "{log}");
    let base64 = SECRET.strip_prefix("whsec_").unwrap();
    for secret in [base64, "hunter2", "XoP42pQ9"] {
        assert!(!log.contains(secret), "{log}");
    }
}
