//! Changes of so many tasks that they go on behind the call.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::schedule_many;
use crate::access::TOKENS;
use crate::memory::connected;
use crate::server::{ANY_PORT, Answer, Server};

fn all() -> Value {
    json!({"filter": {"kind": "k"}})
}

/// Begins to cancel all tasks; gives the path at which it says how far it has come.
async fn begin_to_cancel(server: &Server) -> String {
    let begun = server.post("/v1/tasks:cancel", all()).await;
    assert_eq!(begun.status, 202, "{begun:?}");
    path(&begun.body)
}

fn path(job: &Value) -> String {
    format!("/v1/bulk/{}", job["id"].as_str().unwrap())
}

async fn stop(server: &Server, path: &str) -> Answer {
    Answer::of(server.request(Method::DELETE, path)).await
}

async fn ended(server: &Server, path: &str) -> Value {
    server.until(path, |job| job["state"] != "running").await
}

/// How many are scheduled, up to 10,000.
async fn scheduled(server: &Server) -> u64 {
    let dry = json!({"filter": {"kind": "k"}, "dry_run": true, "limit": 10_000});
    let counted = server.post("/v1/tasks:cancel", dry).await;
    counted.body["matched"].as_u64().unwrap()
}

#[tokio::test]
async fn a_thousand_are_changed_within_the_call_and_some_thousands_behind_it() {
    let server = Server::configured(&format!("{ANY_PORT}base_path = \"/later\""));
    schedule_many(&server, "k", 1_000).await;
    let body = json!({"filter": {"kind": "k"}, "at": "2099-02-01T00:00:00Z"});
    let moved = server.post("/v1/tasks:reschedule", body).await;
    assert_eq!(
        (moved.status.as_u16(), &moved.body["matched"]),
        (200, &json!(1_000))
    );
    assert_eq!(server.get("/v1/bulk").await.body, json!({"jobs": []}));

    // Each is moved once, though what is moved matches again.
    schedule_many(&server, "j", 3_456).await;
    let body = json!({"filter": {"kind": "j"}, "by": "+1d"});
    let request = server.request(Method::POST, "/v1/tasks:shift").json(&body);
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 202);
    let location = response.headers()["location"].to_str().unwrap().to_owned();
    let begun: Value = response.json().await.unwrap();
    assert_eq!(location, format!("/later{}", path(&begun)));
    assert_eq!(
        (&begun["state"], &begun["verb"], &begun["kind"]),
        (&json!("running"), &json!("shift"), &json!("j"))
    );
    let job = ended(&server, &path(&begun)).await;
    let answers =
        json!({"done": 3_456, "too_late": 0, "finished": 0, "conflict": 0, "not_found": 0, "failed": 0});
    assert_eq!(
        (&job["state"], &job["seen"], &job["changed"], &job["answers"]),
        (&json!("done"), &json!(3_456), &json!(3_456), &answers)
    );
    assert!(job["ended_at"].is_string() && job["error"].is_null(), "{job}");
    assert_eq!(server.get("/v1/bulk").await.body, json!({"jobs": [job]}));
    for key in ["0", "3455"] {
        let task = server.get(&format!("/v1/tasks/j/{key}")).await.body;
        assert_eq!(
            (&task["due_at"], &task["version"]),
            (&json!("2099-01-02T00:00:00Z"), &json!(2))
        );
    }
    // It has ended, so there is nothing to stop.
    assert_eq!(stop(&server, &path(&job)).await.body, job);
}

#[tokio::test]
async fn more_than_are_found_at_once_are_moved_once_and_cancelled_to_the_last() {
    let server = Server::start();
    schedule_many(&server, "k", 10_500).await;
    let body = json!({"filter": {"kind": "k"}, "by": "+1d"});
    let shifted = server.post("/v1/tasks:shift", body).await;
    let is_of_all = |job: Value| {
        let answers =
            json!({"done": 10_500, "too_late": 0, "finished": 0, "conflict": 0, "not_found": 0, "failed": 0});
        assert_eq!(
            (&job["state"], &job["seen"], &job["answers"]),
            (&json!("done"), &json!(10_500), &answers),
            "{job}"
        );
    };
    is_of_all(ended(&server, &path(&shifted.body)).await);
    let path = begin_to_cancel(&server).await;
    is_of_all(ended(&server, &path).await);
    assert_eq!(scheduled(&server).await, 0);
}

#[tokio::test]
async fn one_that_is_stopped_leaves_the_rest_as_it_is() {
    let server = Server::start();
    schedule_many(&server, "k", 6_000).await;
    let path = begin_to_cancel(&server).await;
    let stopped = stop(&server, &path).await;
    assert_eq!(
        (stopped.status.as_u16(), &stopped.body["state"]),
        (200, &json!("stopped"))
    );
    let changed = stopped.body["changed"].as_u64().unwrap();
    assert_eq!(scheduled(&server).await, 6_000 - changed);
    assert!(changed < 6_000, "{changed}");
    assert_eq!(server.get(&path).await.body, stopped.body);
    // The same again does the rest.
    let path = begin_to_cancel(&server).await;
    assert_eq!(ended(&server, &path).await["changed"], 6_000 - changed);
}

#[tokio::test]
async fn a_server_that_stops_stops_it_and_the_next_does_not_know_it() {
    let mut server = Server::start();
    schedule_many(&server, "k", 6_000).await;
    let path = begin_to_cancel(&server).await;
    server.terminate();
    assert!(server.ended().success());
    assert!(server.log().contains("state=Stopped"), "{}", server.log());
    let server = server.killed_and_started();
    server
        .get(&path)
        .await
        .refuses(404, "this server knows of no such change");
    stop(&server, &path)
        .await
        .refuses(404, "this server knows of no such change");
    let left = scheduled(&server).await;
    assert!(left > 1_000, "{left}");
    let path = begin_to_cancel(&server).await;
    assert_eq!(ended(&server, &path).await["changed"], left);
}

/// A job that waits for room, as two clients do not read the lists that they have asked for.
async fn begun_behind_slow_readers() -> (Server, String, Vec<TcpStream>) {
    let server = Server::configured(&format!("{ANY_PORT}[worker]\nstop_timeout = \"2s\""));
    schedule_many(&server, "k", 6_000).await;
    let large = json!({"at": "2099-01-01T00:00:00Z", "payload": "x".repeat((1 << 20) - 2)});
    for key in 0..16 {
        let path = format!("/v1/tasks/large/{key}");
        server.put(&path, large.clone()).await.is(201, "new");
    }
    let path = begin_to_cancel(&server).await;
    let mut readers = Vec::new();
    for _ in 0..2 {
        let mut reader = connected(&server).await;
        let request = b"GET /v1/tasks?kind=large HTTP/1.1\r\nhost: localhost\r\n\r\n";
        reader.write_all(request).await.unwrap();
        let mut begins = [0; 12];
        reader.read_exact(&mut begins).await.unwrap();
        assert_eq!(&begins, b"HTTP/1.1 200");
        readers.push(reader);
    }
    (server, path, readers)
}

#[tokio::test]
async fn one_that_waits_for_room_leaves_it_to_others_and_can_be_stopped() {
    let (server, path, _readers) = begun_behind_slow_readers().await;
    let list = server.get("/v1/tasks?kind=k&limit=1").await;
    assert_eq!(list.status, 200, "{list:?}");
    let stopped = stop(&server, &path).await;
    assert_eq!(
        (stopped.status.as_u16(), &stopped.body["state"]),
        (200, &json!("stopped")),
        "{stopped:?}"
    );
}

#[tokio::test]
async fn one_that_waits_for_room_ends_with_its_server() {
    let (mut server, _, _readers) = begun_behind_slow_readers().await;
    server.terminate();
    assert!(server.ended().success());
    assert!(server.log().contains("state=Stopped"), "{}", server.log());
}

#[tokio::test]
async fn four_go_on_at_once_and_a_fifth_is_refused() {
    // Memory for each of them at once.
    let server = Server::configured(&format!("{ANY_PORT}memory_limit = {}\n", 1 << 30));
    schedule_many(&server, "k", 5_000).await;
    // As long as another connection writes, none of them gets further.
    let file = server.folder.path().join("delayline.db");
    let rows = sqlx::SqlitePool::connect(file.to_str().unwrap()).await.unwrap();
    let writing = rows.begin_with("BEGIN IMMEDIATE").await.unwrap();
    // One that waits for longer than a statement may has failed; then another can begin.
    let mut begun = Vec::new();
    let refused = loop {
        let answer = server.post("/v1/tasks:cancel", all()).await;
        if answer.status != 202 {
            break answer;
        }
        begun.push(path(&answer.body));
    };
    refused.refuses(429, "4 changes in bulk go on");
    assert!(begun.len() >= 4, "{begun:?}");
    writing.rollback().await.unwrap();
    // What is few is changed all the same.
    let few = json!({"filter": {"kind": "k"}, "limit": 10});
    assert_eq!(server.post("/v1/tasks:cancel", few).await.status, 200);
    let known = server.get("/v1/bulk").await.body;
    let known: Vec<_> = known["jobs"].as_array().unwrap().iter().map(path).collect();
    assert_eq!(known, begun.iter().rev().cloned().collect::<Vec<_>>());
    for path in &begun {
        assert_eq!(stop(&server, path).await.status, 200);
    }
    let again = begin_to_cancel(&server).await;
    ended(&server, &again).await;
    assert_eq!(scheduled(&server).await, 0);
}

#[tokio::test]
async fn a_token_that_may_change_may_look_and_one_that_may_look_may_not_stop_it() {
    let server = Server::configured(&format!("{ANY_PORT}{TOKENS}"));
    let ask = async |method: Method, path: &str, token: &str| {
        Answer::of(server.request(method, path).bearer_auth(token)).await
    };
    for token in ["reader", "shop"] {
        assert_eq!(
            ask(Method::GET, "/v1/bulk", token).await.body,
            json!({"jobs": []})
        );
        ask(Method::GET, "/v1/bulk/0", token)
            .await
            .refuses(404, "no such change");
    }
    ask(Method::DELETE, "/v1/bulk/0", "shop")
        .await
        .refuses(404, "no such change");
    ask(Method::DELETE, "/v1/bulk/0", "reader")
        .await
        .refuses(403, "may not change");
    ask(Method::GET, "/v1/bulk", "worker")
        .await
        .refuses(403, "may not read nor change");
    ask(Method::GET, "/v1/bulk/0", "unknown")
        .await
        .refuses(401, "no token");
    assert_eq!(ask(Method::POST, "/v1/bulk", "shop").await.status, 405);
    assert_eq!(ask(Method::DELETE, "/v1/bulk", "shop").await.status, 405);
}
