//! New tasks.

use reqwest::Method;
use serde_json::json;

use crate::server::{ANY_PORT, Answer, Server, text};

#[tokio::test]
async fn a_task_is_new_once_and_existing_from_then_on() {
    let server = Server::start();
    let body = json!({"after": "15m", "payload": {"order": 42}, "headers": {"traceparent": "00-a-b-01"}, "max_attempts": 7});
    let new = server.put("/v1/tasks/order.cancel/42", body.clone()).await;
    let task = new.is(201, "new");
    assert_eq!(new.etag.as_deref(), Some("\"1\""));
    assert_eq!(task["kind"], "order.cancel");
    assert_eq!(task["key"], "42");
    assert_eq!(task["state"], "scheduled");
    assert_eq!(task["payload"], json!({"order": 42}));
    assert_eq!(task["headers"], json!({"traceparent": "00-a-b-01"}));
    assert_eq!(task["max_attempts"], 7);
    let again = server.put("/v1/tasks/order.cancel/42", body).await;
    assert_eq!(again.is(200, "existing"), task);
}

#[tokio::test]
async fn a_task_is_replaced_where_that_is_wanted() {
    let server = Server::start();
    let path = "/v1/tasks/post.publish/7";
    server
        .put(path, json!({"at": "2099-01-01T08:00:00+01:00", "payload": 1}))
        .await
        .is(201, "new");
    let replaced = server
        .put(
            path,
            json!({"at": "2099-01-02T08:00:00Z", "payload": 2, "replace": true}),
        )
        .await;
    let task = replaced.is(200, "replaced");
    assert_eq!(
        (&task["due_at"], &task["payload"]),
        (&json!("2099-01-02T08:00:00Z"), &json!(2))
    );
}

#[tokio::test]
async fn a_payload_is_no_deeper_than_workers_can_read() {
    let server = Server::start();
    let nested = |levels: usize| {
        let payload = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        format!("{{\"kind\":\"k\",\"after\":\"0s\",\"payload\":{payload}}}")
    };
    for levels in [121, 100_000] {
        let request = server.request(Method::POST, "/v1/tasks").body(nested(levels));
        Answer::of(request).await.refuses(400, "payload is");
    }
    let request = server.request(Method::POST, "/v1/tasks").body(nested(120));
    Answer::of(request).await.is(201, "new");
    let wanted = json!({"kinds": ["k"], "wait": "30s"});
    // Its body is JSON for this parser too, which reads 127 levels.
    let given = server.post("/v1/claims", wanted).await;
    assert!(given.body["claims"][0]["task"]["payload"].is_array(), "{given:?}");
}

#[tokio::test]
async fn a_name_that_would_be_shown_as_another_is_refused() {
    let server = Server::start();
    let task = json!({"after": "1h"});
    for path in [
        "/v1/tasks/k/refund%E2%80%AE7",
        "/v1/tasks/k/a%0Ab",
        "/v1/tasks/a%E2%81%A6b/1",
    ] {
        server
            .put(path, task.clone())
            .await
            .refuses(400, "without control characters and bidirectional overrides");
    }
    // Letters of both directions are names.
    server.put("/v1/tasks/k/%D7%90-7", task).await.is(201, "new");
}

#[tokio::test]
async fn numbers_in_payloads_stay_as_they_were_written() {
    let server = Server::start();
    let payload = "{\"id\": 12345678901234567890123, \"price\":1.10 }";
    let request = server.request(Method::PUT, "/v1/tasks/k/1");
    Answer::of(request.body(format!("{{\"after\":\"1h\",\"payload\":{payload}}}")))
        .await
        .is(201, "new");
    let text = text(server.request(Method::GET, "/v1/tasks/k/1")).await;
    assert!(text.contains(payload), "{text}");
}

#[tokio::test]
async fn names_may_have_anything_in_them_that_a_path_can_say() {
    let server = Server::start();
    let path = "/v1/tasks/a%2Fb/%E2%82%AC%20%3F";
    let put = server.put(path, json!({"after": "1h"})).await;
    let task = put.is(201, "new");
    assert_eq!((&task["kind"], &task["key"]), (&json!("a/b"), &json!("€ ?")));
    assert_eq!(server.get(path).await.status, 200);
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_by_its_field() {
    let server = Server::start();
    for (body, said) in [
        (json!({}), "allowed is one of after"),
        (json!({"after": "1h", "at": "2099-01-01T00:00:00Z"}), "not both"),
        (json!({"after": "soon"}), "after cannot be used"),
        (json!({"after": 15}), "after cannot be used"),
        (json!({"at": "tomorrow"}), "at cannot be used"),
        (
            json!({"at": "2027-03-28T02:30:00+05:00[Europe/Berlin]"}),
            "allowed is a zone that is known",
        ),
        (
            json!({"at": "2027-03-28T08:30:00+02:00[Europe/Atlantis]"}),
            "allowed is a zone that is known",
        ),
        (
            json!({"at": "2027-03-28T08:30:00Z[!u-ca=hebrew]"}),
            "at cannot be used",
        ),
        (
            json!({"at": "9999-12-31T23:59:59-01:00"}),
            "up to 9999-12-31T23:59:59.999Z",
        ),
        (json!({"after": "1h", "delay": 1}), "unknown field `delay`"),
        (
            json!({"after": "1h", "headers": {"a": 1}}),
            "headers.a cannot be used",
        ),
        (json!({"after": "1h", "max_attempts": 0}), "max_attempts"),
        (json!({"after": "1h", "kind": "other"}), "kind is \"other\""),
        (json!({"at": "+010000-01-01T00:00:00Z"}), "at cannot be used"),
        (json!([]), "the body cannot be used"),
    ] {
        server.put("/v1/tasks/k/1", body).await.refuses(400, said);
    }
    let request = server.request(Method::PUT, "/v1/tasks/k/1");
    Answer::of(request.body("{\"after\": \"1h\"} {}"))
        .await
        .refuses(400, "the body cannot be used");
    let request = server
        .request(Method::PUT, "/v1/tasks/k/1")
        .header("content-type", "text/xml");
    Answer::of(request.body("<a/>"))
        .await
        .refuses(415, "allowed is application/json");
    server
        .put(
            &format!("/v1/tasks/{}/1", "k".repeat(101)),
            json!({"after": "1h"}),
        )
        .await
        .refuses(400, "kind is");
    server
        .put(
            &format!("/v1/tasks/k/{}", "k".repeat(256)),
            json!({"after": "1h"}),
        )
        .await
        .refuses(400, "key is");
    server
        .post("/v1/tasks", json!({"after": "1h"}))
        .await
        .refuses(400, "kind is \"missing\"");
    // Nothing is half done.
    assert_eq!(server.get("/v1/tasks/k/1").await.status, 404);
}

#[tokio::test]
async fn a_time_may_be_the_last_one_and_name_its_zone() {
    let server = Server::start();
    for (key, at, due_at) in [
        ("1", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        (
            "2",
            "2099-06-01T10:00:00+02:00[Europe/Berlin]",
            "2099-06-01T08:00:00Z",
        ),
        ("3", "2099-06-01T08:00:00Z[Europe/Berlin]", "2099-06-01T08:00:00Z"),
    ] {
        let path = format!("/v1/tasks/k/{key}");
        let put = server.put(&path, json!({"at": at})).await;
        assert_eq!(put.is(201, "new")["due_at"], due_at, "{at}");
        assert_eq!(server.get(&path).await.body["due_at"], due_at, "{at}");
    }
}

#[tokio::test]
async fn what_is_too_large_is_refused_by_name() {
    let server = Server::configured(&format!("{ANY_PORT}body_limit = 3000000"));
    let payload = "x".repeat((1 << 20) + 1);
    let put = server
        .put("/v1/tasks/k/1", json!({"after": "1h", "payload": payload}))
        .await;
    put.refuses(400, "payload");
    let payload = "x".repeat(3_000_000);
    let put = server
        .put("/v1/tasks/k/1", json!({"after": "1h", "payload": payload}))
        .await;
    put.refuses(413, "http.body_limit");
}

#[tokio::test]
async fn a_batch_is_answered_in_order_and_one_mistake_keeps_no_other_from_it() {
    let server = Server::start();
    let batch = json!([
        {"kind": "k", "key": "1", "after": "1h"},
        {"kind": "k", "key": "2"},
        {"kind": "k", "key": "1", "after": "2h"},
        {"kind": "", "after": "1h"},
        {"kind": "k", "after": "1h", "payload": [1]},
    ]);
    let answer = server.post("/v1/tasks", batch).await;
    assert_eq!(answer.status, 200);
    let each = answer.body.as_array().unwrap();
    let statuses: Vec<_> = each.iter().map(|each| each["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [201, 400, 200, 400, 201]);
    assert_eq!(each[2]["answer"], "existing");
    assert_eq!(each[3]["field"], "kind");
    let task = &each[4]["task"];
    let found = server
        .get(&format!("/v1/tasks/id/{}", task["id"].as_str().unwrap()))
        .await;
    assert_eq!((task.get("payload"), &found.body["payload"]), (None, &json!([1])));
}

#[tokio::test]
async fn a_request_that_is_repeated_by_its_idempotency_key_makes_one_task() {
    let server = Server::start();
    let post = async |name: &'static str, body: serde_json::Value| {
        let request = server
            .request(Method::POST, "/v1/tasks")
            .header("idempotency-key", name);
        Answer::of(request.json(&body)).await
    };
    let body = json!({"kind": "k", "after": "1h"});
    let first = post("a", body.clone()).await;
    let again = post("a", body.clone()).await;
    assert_eq!(first.is(201, "new"), again.is(201, "new"), "the same answer");
    post("b", body.clone()).await.is(201, "new");
    let batch = json!([body, body]);
    let statuses = |answer: Answer| -> Vec<_> {
        let each = answer.body.as_array().unwrap().iter();
        each.map(|each| each["status"].as_u64().unwrap()).collect()
    };
    assert_eq!(statuses(post("c", batch.clone()).await), [201, 201]);
    assert_eq!(statuses(post("c", batch).await), [201, 201]);
    let kinds = server.get("/v1/tasks?kind=k").await.body;
    assert_eq!(kinds["tasks"].as_array().unwrap().len(), 4);
}
