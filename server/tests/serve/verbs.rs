//! What is done with tasks that are there.

use reqwest::Method;
use serde_json::{Value, json};

use crate::server::{Answer, Server, text};

async fn with_a_task() -> Server {
    let server = Server::start();
    let body = json!({"at": "2099-01-01T08:00:00Z"});
    server.put("/v1/tasks/k/1", body).await.is(201, "new");
    server
}

#[tokio::test]
async fn a_task_is_moved() {
    let server = with_a_task().await;
    let moved = server
        .post("/v1/tasks/k/1/reschedule", json!({"at": "2099-01-02T08:00:00Z"}))
        .await;
    assert_eq!(moved.is(200, "done")["due_at"], "2099-01-02T08:00:00Z");
    let later = server.post("/v1/tasks/k/1/shift", json!({"by": "+1h 30m"})).await;
    assert_eq!(later.is(200, "done")["due_at"], "2099-01-02T09:30:00Z");
    let earlier = server.post("/v1/tasks/k/1/shift", json!({"by": "-1d"})).await;
    assert_eq!(earlier.is(200, "done")["due_at"], "2099-01-01T09:30:00Z");
}

#[tokio::test]
async fn a_task_that_is_cancelled_is_finished() {
    let server = with_a_task().await;
    let cancelled = server.post("/v1/tasks/k/1/cancel", json!({})).await;
    assert_eq!(cancelled.is(200, "done")["state"], "cancelled");
    for verb in ["cancel", "run"] {
        let answer = server.post(&format!("/v1/tasks/k/1/{verb}"), json!({})).await;
        assert_eq!(answer.is(409, "finished")["state"], "cancelled");
    }
    for verb in ["redrive", "dismiss"] {
        let answer = server.post(&format!("/v1/tasks/k/1/{verb}"), json!({})).await;
        assert_eq!(answer.is(409, "finished")["state"], "cancelled");
    }
}

/// With its fields in their order, in which a client may read them, and its payload as it came.
#[tokio::test]
async fn a_task_that_is_not_changed_is_shown_as_one_that_is() {
    let server = Server::start();
    let made = server
        .request(Method::PUT, "/v1/tasks/k/1")
        .header("content-type", "application/json")
        .body(r#"{"after": "1h", "payload": {"z": 1e2, "a": 1}}"#);
    Answer::of(made).await.is(201, "new");
    let cancelled = async || {
        let request = server.request(Method::POST, "/v1/tasks/k/1/cancel");
        let body = text(request.json(&json!({}))).await;
        body[body.find(r#""task":"#).unwrap()..].to_owned()
    };
    assert_eq!(cancelled().await, cancelled().await);
}

#[tokio::test]
async fn a_task_that_waits_is_neither_redriven_nor_dismissed() {
    let server = with_a_task().await;
    for verb in ["redrive", "dismiss"] {
        let answer = server.post(&format!("/v1/tasks/k/1/{verb}"), json!({})).await;
        assert_eq!(answer.is(409, "conflict")["state"], "scheduled");
    }
    assert_eq!(server.get("/v1/tasks/k/1").await.body["version"], 1);
}

#[tokio::test]
async fn a_dead_task_that_is_dismissed_has_ended_for_good() {
    let server = Server::start();
    let due = json!({"after": "0s"});
    server.put("/v1/tasks/k/1", due).await.is(201, "new");
    let claims = json!({"kinds": ["k"], "wait": "20s"});
    let claims = server.post("/v1/claims", claims).await.body;
    let path = format!("/v1/claims/{}", claims["claims"][0]["claim"].as_str().unwrap());
    let running = server.post("/v1/tasks/k/1/dismiss", json!({})).await;
    assert_eq!(running.is(409, "conflict")["state"], "running");
    let given_up = json!({"reason": "no stock"});
    let ended = server.post(&format!("{path}/discard"), given_up).await;
    assert_eq!(ended.status, 200, "{ended:?}");

    let dismiss = |etag: &str| {
        let request = server.request(Method::POST, "/v1/tasks/k/1/dismiss");
        let request = request.header("if-match", etag.to_owned());
        Answer::of(request.json(&json!({"reason": "no longer wanted"})))
    };
    let found = server.get("/v1/tasks/k/1").await;
    assert_eq!(dismiss("\"9\"").await.is(412, "conflict")["state"], "dead");
    let dismissed = dismiss(found.etag.as_deref().unwrap()).await;
    assert_eq!(dismissed.is(200, "done")["state"], "cancelled");
    let told = server.get("/v1/tasks/k/1?explain=1").await.body;
    let last = told["history"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["event"], &last["actor"], &last["reason"]),
        (
            &json!("dismissed"),
            &json!("api:anybody"),
            &json!("no longer wanted")
        )
    );
    for verb in ["dismiss", "redrive"] {
        let answer = server.post(&format!("/v1/tasks/k/1/{verb}"), json!({})).await;
        assert_eq!(answer.is(409, "finished")["state"], "cancelled");
    }
}

#[tokio::test]
async fn a_verb_without_a_body_is_taken() {
    let server = with_a_task().await;
    let request = server.request(Method::POST, "/v1/tasks/k/1/run");
    assert_eq!(Answer::of(request).await.is(200, "done")["state"], "scheduled");
}

#[tokio::test]
async fn what_is_not_there_is_not_found() {
    let server = Server::start();
    for verb in ["cancel", "run", "redrive", "dismiss"] {
        let answer = server.post(&format!("/v1/tasks/k/1/{verb}"), json!({})).await;
        assert_eq!(answer.is(404, "not_found"), &Value::Null);
    }
    server
        .post("/v1/tasks/k/1/shift", json!({"by": "+1s"}))
        .await
        .is(404, "not_found");
    server
        .post("/v1/tasks/k/1/reschedule", json!({"after": "1s"}))
        .await
        .is(404, "not_found");
}

#[tokio::test]
async fn a_verb_that_expects_another_version_changes_nothing() {
    let server = with_a_task().await;
    let ask = async |verb: &str, etag: &str, body: Value| {
        let request = server.request(Method::POST, &format!("/v1/tasks/k/1/{verb}"));
        Answer::of(request.header("if-match", etag).json(&body)).await
    };
    for (verb, body) in [
        ("cancel", json!({})),
        ("run", json!({})),
        ("shift", json!({"by": "+1s"})),
        ("reschedule", json!({"after": "1s"})),
    ] {
        let refused = ask(verb, "\"9\"", body).await;
        assert_eq!(refused.is(412, "conflict")["version"], 1, "{verb}");
    }
    ask("redrive", "\"9\"", json!({})).await.is(412, "conflict");
    let found = server.get("/v1/tasks/k/1").await;
    // It is of that version, but not dead.
    let redriven = ask("redrive", found.etag.as_deref().unwrap(), json!({})).await;
    redriven.is(409, "conflict");
    let moved = ask("shift", found.etag.as_deref().unwrap(), json!({"by": "+1s"})).await;
    assert_eq!(moved.is(200, "done")["version"], 2);
    ask("cancel", "*", json!({})).await.is(200, "done");
    for etag in ["2", "\"x\"", "W/\"2\""] {
        ask("cancel", etag, json!({})).await.refuses(400, "If-Match");
    }
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_by_its_field() {
    let server = with_a_task().await;
    for (verb, body, said) in [
        ("shift", json!({"by": "10m"}), "allowed is a sign"),
        ("shift", json!({"by": "€"}), "allowed is a sign"),
        ("shift", json!({"by": ""}), "allowed is a sign"),
        ("shift", json!({}), "missing field `by`"),
        ("reschedule", json!({}), "allowed is one of after"),
        ("cancel", json!({"why": "x"}), "unknown field `why`"),
    ] {
        server
            .post(&format!("/v1/tasks/k/1/{verb}"), body)
            .await
            .refuses(400, said);
    }
    assert_eq!(server.get("/v1/tasks/k/1").await.body["version"], 1);
}

#[tokio::test]
async fn what_has_ended_is_run_again_as_a_new_task() {
    let server = Server::start();
    let body = json!({"at": "2099-01-01T08:00:00Z", "payload": {"n": 1.50}, "headers": {"for": "x"}, "max_attempts": 7});
    let first = server.put("/v1/tasks/k/1", body).await;
    let first = first.is(201, "new").clone();
    let waits = server.post("/v1/tasks/k/1/rerun", json!({})).await;
    assert_eq!(waits.is(409, "conflict")["id"], first["id"]);
    server
        .post("/v1/tasks/k/1/cancel", json!({}))
        .await
        .is(200, "done");

    let again = server
        .post("/v1/tasks/k/1/rerun", json!({"reason": "the shop was closed"}))
        .await;
    let second = again.is(201, "new").clone();
    assert_eq!(again.etag.as_deref(), Some("\"1\""));
    assert_ne!(second["id"], first["id"]);
    for field in ["kind", "key", "payload", "headers", "max_attempts"] {
        assert_eq!(second[field], first[field], "{field}");
    }
    let second_id = second["id"].as_str().unwrap();
    let told = server.get("/v1/tasks/k/1?explain=1").await.body;
    assert_eq!(told["id"], second_id, "it has the key");
    let why = format!(
        "again after {}: the shop was closed",
        first["id"].as_str().unwrap()
    );
    assert_eq!(told["history"][0]["reason"], why);

    // The key is that of a live task now, and the first one is still known by its id.
    let path = format!("/v1/tasks/id/{}/rerun", first["id"].as_str().unwrap());
    let third = server.post(&path, json!({})).await;
    assert_eq!(third.is(201, "new").get("key"), None);
    let claims = json!({"kinds": ["k"], "max": 10});
    let claims = server.post("/v1/claims", claims).await.body;
    let claims = claims["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 2);
    assert!(
        claims
            .iter()
            .all(|claim| claim["task"]["payload"] == json!({"n": 1.50}))
    );

    let none = server.post("/v1/tasks/k/none/rerun", json!({})).await;
    assert_eq!(none.is(404, "not_found"), &Value::Null);
    let named = server.request(Method::POST, &path).header("idempotency-key", "a");
    let refused = Answer::of(named).await;
    refused.refuses(400, "Idempotency-Key");
    refused.refuses(400, "a rerun makes a new task each time");
}
