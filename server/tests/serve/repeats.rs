//! Requests that come again, by their `Idempotency-Key`.

use std::time::Duration;

use reqwest::Method;
use serde_json::{Value, json};

use crate::server::{Answer, Server};

async fn put(server: &Server, key: &str, name: &str, body: &Value) -> Answer {
    let request = server.request(Method::PUT, &format!("/v1/tasks/k/{key}"));
    Answer::of(request.header("idempotency-key", name).json(body)).await
}

async fn post(server: &Server, name: &str, body: &Value) -> Answer {
    let request = server.request(Method::POST, "/v1/tasks");
    Answer::of(request.header("idempotency-key", name).json(body)).await
}

/// Claims the task that is due, and ends it.
async fn work(server: &Server) {
    let wanted = json!({"kinds": ["k"], "wait": "30s"});
    let given = server.post("/v1/claims", wanted).await.body;
    let claim = given["claims"][0]["claim"].as_str().unwrap().to_owned();
    let done = format!("/v1/claims/{claim}/done");
    server.post(&done, json!({})).await.is(200, "done");
}

#[tokio::test]
async fn a_put_runs_once_however_often_it_comes() {
    let server = Server::start();
    let body = json!({"after": "0s", "payload": {"order": 42}});
    let first = put(&server, "1", "a", &body).await;
    let id = first.is(201, "new")["id"].clone();
    work(&server).await;
    let again = put(&server, "1", "a", &body).await;
    let task = again.is(201, "new");
    assert_eq!((&task["id"], &task["state"]), (&id, &json!("done")));
    let claims = server.post("/v1/claims", json!({"kinds": ["k"]})).await.body;
    assert_eq!(claims, json!({"claims": []}), "nothing runs a second time");
    // Another one of its name does nothing.
    let other = json!({"after": "0s", "payload": {"order": 43}});
    put(&server, "1", "a", &other)
        .await
        .refuses(422, "Idempotency-Key");
    put(&server, "2", "a", &body)
        .await
        .refuses(422, "Idempotency-Key");
    let posted = json!({"kind": "k", "key": "1", "after": "0s", "payload": {"order": 42}});
    post(&server, "a", &posted).await.refuses(422, "Idempotency-Key");
    assert_eq!(server.get("/v1/tasks/k/2").await.status, 404);
    // Without a name, or by another one, it is a new task.
    let next = put(&server, "1", "b", &body).await;
    assert_ne!(next.is(201, "new")["id"], id);
}

#[tokio::test]
async fn a_used_name_with_another_body_is_refused() {
    let server = Server::start();
    let body = |payload: u32| json!({"kind": "k", "after": "1h", "payload": payload});
    let first = post(&server, "a", &body(1)).await;
    let task = first.is(201, "new").clone();
    assert_eq!(post(&server, "a", &body(1)).await.is(201, "new"), &task);
    post(&server, "a", &body(2)).await.refuses(422, "Idempotency-Key");
    for other in [
        json!({"kind": "k", "after": "2h", "payload": 1}),
        json!({"kind": "l", "after": "1h", "payload": 1}),
        json!({"kind": "k", "key": "1", "after": "1h", "payload": 1}),
        json!({"kind": "k", "after": "1h", "payload": 1, "headers": {"a": "b"}}),
        json!({"kind": "k", "after": "1h", "payload": 1, "max_attempts": 1}),
    ] {
        post(&server, "a", &other).await.refuses(422, "Idempotency-Key");
    }
    assert_eq!(server.get("/v1/tasks?kind=l").await.body["tasks"], json!([]));
    let batch = json!([body(1), body(2)]);
    post(&server, "b", &batch).await;
    let longer = json!([body(1), body(2), body(3)]);
    post(&server, "b", &longer).await.refuses(422, "Idempotency-Key");
    let tasks = server.get("/v1/tasks?kind=k").await.body["tasks"].clone();
    assert_eq!(tasks.as_array().unwrap().len(), 3, "{tasks}");
    post(&server, "", &body(1)).await.refuses(400, "Idempotency-Key");
    let long = "x".repeat(256);
    post(&server, &long, &body(1))
        .await
        .refuses(400, "Idempotency-Key");
}

#[tokio::test]
async fn a_repeated_replacement_moves_nothing_again() {
    let server = Server::start();
    let first = json!({"after": "1h", "payload": 1});
    server.put("/v1/tasks/k/1", first).await.is(201, "new");
    let replace = |payload: u32| json!({"after": "2h", "payload": payload, "replace": true});
    let replaced = put(&server, "1", "a", &replace(2)).await;
    let task = replaced.is(200, "replaced").clone();
    // A time from now would be a later one.
    tokio::time::sleep(Duration::from_millis(5)).await;
    assert_eq!(
        put(&server, "1", "a", &replace(2)).await.is(200, "replaced"),
        &task
    );
    put(&server, "1", "a", &replace(3))
        .await
        .refuses(422, "Idempotency-Key");
    // Nor is what came after it undone by a repeat that comes late.
    let later = put(&server, "1", "b", &replace(3)).await;
    let later = later.is(200, "replaced").clone();
    assert_eq!(
        put(&server, "1", "a", &replace(2)).await.is(200, "replaced"),
        &later
    );
    let batch = json!([{"kind": "k", "key": "1", "after": "3h", "payload": 4, "replace": true}]);
    let batched = post(&server, "c", &batch).await.body;
    assert_eq!(batched[0]["answer"], "replaced");
    assert_eq!(post(&server, "c", &batch).await.body, batched);
    // Also when it has ended.
    server.post("/v1/tasks/k/1/run", json!({})).await.is(200, "done");
    work(&server).await;
    let again = put(&server, "1", "a", &replace(2)).await;
    assert_eq!(again.is(200, "replaced")["state"], "done");
    let tasks = server.get("/v1/tasks?kind=k").await.body["tasks"].clone();
    assert_eq!(tasks, json!([]));
    // What is kept of them is shown to no caller.
    assert_eq!(again.is(200, "replaced")["headers"], json!({}));
    assert_eq!(server.get("/v1/tasks/k/1").await.body["headers"], json!({}));
}

#[tokio::test]
async fn a_replacement_that_was_the_first_is_known_as_well() {
    let server = Server::start();
    let body = json!({"after": "1h", "replace": true});
    let new = put(&server, "1", "a", &body).await;
    let task = new.is(201, "new").clone();
    assert_eq!(put(&server, "1", "a", &body).await.is(201, "new"), &task);
    // Twenty more are more than it keeps, but its own name is its id.
    for name in 0..20 {
        let name = format!("later {name}");
        put(&server, "1", &name, &body).await.is(200, "replaced");
    }
    let version = server.get("/v1/tasks/k/1").await.body["version"].clone();
    put(&server, "1", "a", &body).await.is(201, "new");
    put(&server, "1", "later 19", &body).await.is(200, "replaced");
    assert_eq!(server.get("/v1/tasks/k/1").await.body["version"], version);
}

#[tokio::test]
async fn a_verb_takes_no_name_that_it_would_not_keep() {
    let server = Server::start();
    server
        .put("/v1/tasks/k/1", json!({"after": "1h"}))
        .await
        .is(201, "new");
    for (verb, body) in [
        ("cancel", json!({})),
        ("run", json!({})),
        ("redrive", json!({})),
        ("dismiss", json!({})),
        ("reschedule", json!({"after": "2h"})),
        ("shift", json!({"by": "+10m"})),
    ] {
        let request = server.request(Method::POST, &format!("/v1/tasks/k/1/{verb}"));
        let request = request.header("idempotency-key", "a").json(&body);
        Answer::of(request).await.refuses(400, "If-Match");
        let mut bulk = json!({"filter": {"kind": "k"}});
        bulk.as_object_mut()
            .unwrap()
            .extend(body.as_object().unwrap().clone());
        let request = server.request(Method::POST, &format!("/v1/tasks:{verb}"));
        let request = request.header("idempotency-key", "a").json(&bulk);
        let refused = Answer::of(request).await;
        refused.refuses(400, "Idempotency-Key");
        refused.refuses(400, "changes what matches by then");
    }
    assert_eq!(server.get("/v1/tasks/k/1").await.body["version"], 1);
    // As it says: by its version it is done once.
    let shift = || {
        let request = server.request(Method::POST, "/v1/tasks/k/1/shift");
        request.header("if-match", "\"1\"").json(&json!({"by": "+10m"}))
    };
    Answer::of(shift()).await.is(200, "done");
    Answer::of(shift()).await.is(412, "conflict");
}

/// Asks on a condition.
async fn on(server: &Server, method: Method, path: &str, condition: &'static str, body: Value) -> Answer {
    let request = server.request(method, path).header(condition, "\"9\"");
    Answer::of(request.json(&body)).await
}

#[tokio::test]
async fn a_condition_that_would_not_be_evaluated_is_refused() {
    let server = Server::start();
    let task = json!({"after": "1h", "replace": true});
    server.put("/v1/tasks/k/1", task.clone()).await.is(201, "new");
    server.put("/v1/tasks/k/2", task.clone()).await.is(201, "new");
    server
        .post("/v1/tasks/k/2/cancel", json!({}))
        .await
        .is(200, "done");
    for condition in ["If-Match", "If-None-Match"] {
        for path in ["/v1/tasks/k/2/rerun", "/v1/tasks:cancel"] {
            let body = match path {
                "/v1/tasks:cancel" => json!({"filter": {"kind": "k"}}),
                _ => json!({}),
            };
            let refused = on(&server, Method::POST, path, condition, body).await;
            refused.refuses(400, "allowed is none; ");
            assert_eq!(
                (&refused.body["field"], &refused.body["value"]),
                (&json!(condition), &json!("\"9\""))
            );
        }
    }
    let verb = on(
        &server,
        Method::POST,
        "/v1/tasks/k/1/cancel",
        "If-None-Match",
        json!({}),
    );
    verb.await
        .refuses(400, "allowed is If-Match with a verb of one task");
    assert_eq!(server.get("/v1/tasks/k/1").await.body["version"], 1);
    assert_eq!(server.get("/v1/tasks/k/2").await.body["state"], "cancelled");
}

#[tokio::test]
async fn a_task_is_not_replaced_on_a_condition_that_would_not_be_evaluated() {
    let server = Server::start();
    let task = json!({"kind": "k", "key": "1", "after": "1h", "payload": "first", "replace": true});
    server.post("/v1/tasks", task.clone()).await.is(201, "new");
    let mut other = task;
    other["payload"] = json!("other");
    for condition in ["If-Match", "If-None-Match"] {
        for (method, path, body) in [
            (Method::PUT, "/v1/tasks/k/1", other.clone()),
            (Method::POST, "/v1/tasks", other.clone()),
            (Method::POST, "/v1/tasks", json!([other])),
        ] {
            let refused = on(&server, method, path, condition, body).await;
            refused.refuses(400, "allowed is If-Match with a verb of one task");
        }
    }
    assert_eq!(server.get("/v1/tasks/k/1").await.body["payload"], "first");
}
