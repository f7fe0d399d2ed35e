//! What is coming, and what the server has done.

use serde_json::{Value, json};

use crate::server::Server;

/// A kind of which so many are due within each span.
fn coming(kind: &str, counts: [u32; 8]) -> Value {
    let within = ["5s", "1m", "5m", "15m", "1h", "4h", "8h", "24h"];
    let due = within.iter().zip(counts);
    let due: Vec<_> = due
        .map(|(within, tasks)| json!({"within": within, "tasks": tasks}))
        .collect();
    json!({"kind": kind, "due": due, "more": false})
}

#[tokio::test]
async fn tasks_are_counted_by_kind_within_each_span() {
    let server = Server::start();
    assert_eq!(server.get("/v1/forecast").await.body, json!({"kinds": []}));
    let delays = ["0s", "1s", "50s", "4m", "14m", "50m", "3h", "7h", "23h", "25h"];
    let tasks: Vec<_> = delays
        .iter()
        .map(|after| json!({"kind": "b", "after": after}))
        .chain(["a", "c"].map(|kind| json!({"kind": kind, "key": "1", "after": "3h"})))
        .collect();
    assert_eq!(server.post("/v1/tasks", json!(tasks)).await.status, 200);
    server
        .post("/v1/tasks/c/1/cancel", json!({}))
        .await
        .is(200, "done");
    let [a, b] = [
        coming("a", [0, 0, 0, 0, 0, 1, 1, 1]),
        coming("b", [2, 3, 4, 5, 6, 7, 8, 9]),
    ];
    let forecast = async |search: &str| server.get(&format!("/v1/forecast{search}")).await.body;
    assert_eq!(forecast("").await, json!({"kinds": [a, b]}));
    assert_eq!(forecast("?kind=b").await, json!({"kinds": [b]}));
    // Of this one all are cancelled, and of that one there were none.
    assert_eq!(forecast("?kind=c").await, json!({"kinds": [coming("c", [0; 8])]}));
    assert_eq!(
        forecast("?kind=none").await,
        json!({"kinds": [coming("none", [0; 8])]})
    );
    assert_eq!(forecast("?limit=1").await, json!({"kinds": [a]}));
    assert_eq!(forecast("?limit=1&after=a").await, json!({"kinds": [b]}));
    assert_eq!(forecast("?after=b").await, json!({"kinds": []}));
}

#[tokio::test]
async fn a_forecast_that_cannot_be_made_is_refused_by_name() {
    let server = Server::start();
    for (search, said) in [
        ("?kind=", "kind is"),
        ("?kind=k&after=j", "one of kind and after"),
        ("?limit=0", "allowed are 1 to 100"),
        ("?limit=101", "allowed are 1 to 100"),
        ("?within=2h", "within"),
    ] {
        server
            .get(&format!("/v1/forecast{search}"))
            .await
            .refuses(400, said);
    }
    assert_eq!(server.post("/v1/forecast", json!({})).await.status, 405);
}

#[tokio::test]
async fn the_server_tells_what_it_has_done_and_since_when() {
    let before = delayline::Timestamp::from(std::time::SystemTime::now());
    let server = Server::start();
    let first = server.get("/v1/stats").await.body;
    let started: delayline::Timestamp = first["started_at"].as_str().unwrap().parse().unwrap();
    let passed = delayline::Timestamp::from(std::time::SystemTime::now());
    assert!((before..=passed).contains(&started), "{first}");
    assert_eq!(first["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(first["stats"]["started"], 0);
    server
        .put("/v1/tasks/k/1", json!({"after": "0s"}))
        .await
        .is(201, "new");
    let claims = server
        .post("/v1/claims", json!({"kinds": ["k"], "wait": "20s"}))
        .await;
    let claim = claims.body["claims"][0]["claim"].as_str().unwrap();
    server
        .post(&format!("/v1/claims/{claim}/done"), json!({}))
        .await
        .is(200, "done");
    let then = server.get("/v1/stats").await.body;
    let counts = |name: &str| then["stats"][name].clone();
    assert_eq!(
        (counts("started"), counts("done")),
        (json!(1), json!(1)),
        "{then}"
    );
    assert!(counts("late")["max_ms"].is_u64(), "{then}");
    assert_eq!(then["started_at"], first["started_at"]);
    assert_eq!(server.post("/v1/stats", json!({})).await.status, 405);
}
