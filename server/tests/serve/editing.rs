//! Another payload, another time, or both.

use reqwest::Method;
use serde_json::{Value, json};

use crate::server::{Answer, Server};

async fn with_a_task() -> (Server, Value) {
    let server = Server::start();
    let body = json!({"after": "1h", "payload": {"order": 42}, "headers": {"a": "b"}, "max_attempts": 3});
    let task = server.put("/v1/tasks/k/1", body).await.is(201, "new").clone();
    (server, task)
}

/// A task but for what any change of it changes.
fn kept(task: &Value) -> Value {
    let mut task = task.clone();
    for name in ["version", "updated_at", "payload"] {
        task.as_object_mut().unwrap().remove(name);
    }
    task
}

#[tokio::test]
async fn a_payload_is_changed_and_all_else_stays() {
    let (server, before) = with_a_task().await;
    let id = before["id"].as_str().unwrap();
    for (path, payload) in [
        ("/v1/tasks/k/1/edit".to_owned(), json!({"order": 43})),
        (format!("/v1/tasks/id/{id}/edit"), Value::Null),
    ] {
        let answer = server
            .post(&path, json!({"payload": payload, "reason": "a typo"}))
            .await;
        let task = answer.is(200, "done");
        assert_eq!((&task["payload"], kept(task)), (&payload, kept(&before)));
    }
    let told = server.get("/v1/tasks/k/1?explain=1").await.body;
    let last = told["history"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&last["event"], &last["reason"]),
        (&json!("edited"), &json!("a typo"))
    );
}

#[tokio::test]
async fn a_time_is_changed_with_or_without_a_payload() {
    let (server, _) = with_a_task().await;
    let at = |year: u32| json!(format!("{year}-01-01T00:00:00Z"));
    let answer = server.post("/v1/tasks/k/1/edit", json!({"at": at(2098)})).await;
    let task = answer.is(200, "done");
    assert_eq!(
        (&task["payload"], &task["due_at"]),
        (&json!({"order": 42}), &at(2098))
    );
    let both = json!({"at": at(2099), "payload": [1]});
    let answer = server.post("/v1/tasks/k/1/edit", both).await;
    let task = answer.is(200, "done");
    assert_eq!(
        (&task["payload"], &task["due_at"], &task["version"]),
        (&json!([1]), &at(2099), &json!(3))
    );
}

#[tokio::test]
async fn what_cannot_be_edited_is_refused() {
    let (server, before) = with_a_task().await;
    let edit = async |path: &str, body: Value| server.post(&format!("/v1/tasks/{path}/edit"), body).await;
    let payload = || json!({"payload": 1});
    edit("k/1", json!({})).await.refuses(400, "nothing to change");
    let both = json!({"payload": 1, "at": "2099-01-01T00:00:00Z", "after": "1s"});
    edit("k/1", both).await.refuses(400, "one of after and at");
    edit("k/1", json!({"payload": 1, "headers": {}}))
        .await
        .refuses(400, "headers");
    let mut deep = json!(1);
    for _ in 0..121 {
        deep = json!([deep]);
    }
    edit("k/1", json!({"payload": deep}))
        .await
        .refuses(400, "121 levels");
    edit("delayline.paused/k", payload())
        .await
        .refuses(404, "no such task");
    edit("k/2", payload()).await.is(404, "not_found");
    let request = server
        .request(Method::POST, "/v1/tasks/k/1/edit")
        .header("if-match", "\"9\"");
    Answer::of(request.json(&payload())).await.is(412, "conflict");
    assert_eq!(server.get("/v1/tasks/k/1").await.body, before);

    server.post("/v1/tasks/k/1/run", json!({})).await.is(200, "done");
    server
        .post("/v1/claims", json!({"kinds": ["k"], "wait": "20s"}))
        .await;
    edit("k/1", payload()).await.is(409, "too_late");
    let other = server
        .post("/v1/tasks", json!({"kind": "k", "after": "1h"}))
        .await;
    let id = other.is(201, "new")["id"].as_str().unwrap();
    server
        .post(&format!("/v1/tasks/id/{id}/cancel"), json!({}))
        .await
        .is(200, "done");
    edit(&format!("id/{id}"), payload()).await.is(409, "finished");
}
