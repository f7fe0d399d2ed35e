//! Server-sent events: what becomes of tasks, told while it happens.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use crate::server::Server;

/// A feed, and what has come of it that was not looked at.
struct Feed(Response, String);

impl Feed {
    async fn open(server: &Server, path: &str) -> Self {
        let response = server.request(Method::GET, path).send().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        Self(response, String::new())
    }

    /// The name of the next event, and its task; none, if the feed is over.
    async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.1.split_once("\n\n") {
                let field = |name: &str| {
                    let mut lines = event.lines();
                    lines
                        .find_map(|line| line.strip_prefix(name))
                        .map(|value| value.trim().to_owned())
                };
                let told = field("event:").zip(field("data:"));
                self.1 = rest.to_owned();
                match told {
                    Some((name, data)) => return Some((name, serde_json::from_str(&data).unwrap())),
                    // A comment, by which the connection is kept.
                    None => continue,
                }
            }
            let more = self.0.chunk().await.unwrap()?;
            self.1.push_str(std::str::from_utf8(&more).unwrap());
        }
    }
}

#[tokio::test]
async fn listeners_are_told_what_becomes_of_a_task() {
    let server = Server::start();
    let mut all = Feed::open(&server, "/v1/events").await;
    let mut others = Feed::open(&server, "/v1/events?kind=other").await;
    let task = json!({"after": "1h", "payload": "a secret"});
    server
        .put("/v1/tasks/report/1", task.clone())
        .await
        .is(201, "new");
    server
        .post("/v1/tasks/report/1/run", json!({}))
        .await
        .is(200, "done");
    let taken = server
        .post("/v1/claims", json!({"kinds": ["report"], "wait": "30s"}))
        .await
        .body;
    let claim = taken["claims"][0]["claim"].as_str().unwrap();
    server
        .post(&format!("/v1/claims/{claim}/done"), json!({}))
        .await
        .is(200, "done");
    server.put("/v1/tasks/other/1", task).await.is(201, "new");
    let mut versions = Vec::new();
    for state in ["scheduled", "scheduled", "running", "done"] {
        let (name, task) = all.next().await.unwrap();
        assert_eq!((name.as_str(), &task["state"]), (state, &json!(state)));
        assert_eq!((&task["kind"], &task["key"]), (&json!("report"), &json!("1")));
        assert_eq!(task.get("payload"), None);
        versions.push(task["version"].as_u64().unwrap());
    }
    assert_eq!(versions, [1, 2, 3, 4]);
    // Another kind, and nothing before it.
    let (name, task) = others.next().await.unwrap();
    assert_eq!((name.as_str(), &task["kind"]), ("scheduled", &json!("other")));
}

#[tokio::test]
async fn a_feed_ends_with_its_server_and_keeps_it_from_nothing() {
    let mut server = Server::start();
    let mut feed = Feed::open(&server, "/v1/events").await;
    server.terminate();
    assert_eq!(feed.next().await, None);
    assert!(server.ended().success());
}

#[tokio::test]
async fn a_feed_that_cannot_be_is_refused_by_name() {
    let server = Server::start();
    server.get("/v1/events?kind=").await.refuses(400, "kind");
    server.get("/v1/events?state=done").await.refuses(400, "state");
}
