//! Workers that are programs of their own and ask over HTTP.

use std::time::Duration;

use serde_json::{Value, json};

use crate::server::{ANY_PORT, Server};

/// Schedules a task for now, and claims it.
async fn claimed(server: &Server, key: &str, lease: &str) -> String {
    server
        .put(
            &format!("/v1/tasks/k/{key}"),
            json!({"after": "0s", "payload": key}),
        )
        .await;
    let given = server
        .post(
            "/v1/claims",
            json!({"kinds": ["k"], "wait": "30s", "lease": lease}),
        )
        .await;
    assert_eq!(given.status, 200, "{given:?}");
    let claim = &given.body["claims"][0];
    assert_eq!(
        (&claim["task"]["payload"], &claim["task"]["state"]),
        (&json!(key), &json!("running"))
    );
    claim["claim"].as_str().unwrap().to_owned()
}

async fn state(server: &Server, key: &str) -> Value {
    server.get(&format!("/v1/tasks/k/{key}")).await.body
}

#[tokio::test]
async fn a_task_is_claimed_when_it_is_due_and_done_once() {
    let server = Server::start();
    server
        .put("/v1/tasks/k/1", json!({"after": "300ms", "headers": {"a": "b"}}))
        .await
        .is(201, "new");
    let nothing = server.post("/v1/claims", json!({"kinds": ["k"]})).await;
    assert_eq!(nothing.body, json!({"claims": []}));
    let given = server
        .post(
            "/v1/claims",
            json!({"kinds": ["other", "k"], "max": 5, "wait": "30s"}),
        )
        .await;
    let claims = given.body["claims"].as_array().unwrap();
    assert_eq!(claims.len(), 1);
    let task = &claims[0]["task"];
    assert_eq!(
        (&task["key"], &task["attempt"], &task["headers"]),
        (&json!("1"), &json!(1), &json!({"a": "b"}))
    );
    let done = format!("/v1/claims/{}/done", claims[0]["claim"].as_str().unwrap());
    server.post(&done, json!({})).await.is(200, "done");
    server.post(&done, json!({})).await.is(409, "lost");
    assert_eq!(state(&server, "1").await["state"], "done");
}

#[tokio::test]
async fn several_are_done_in_one_call_each_with_an_answer_of_its_own() {
    let server = Server::start();
    let mut claims = Vec::new();
    for key in ["1", "2", "3"] {
        claims.push(claimed(&server, key, "30s").await);
    }
    server
        .post(&format!("/v1/claims/{}/done", claims[1]), json!({}))
        .await
        .is(200, "done");
    // One has ended before, and one is named twice.
    let all = [&claims[0], &claims[1], &claims[2], &claims[0]];
    let answered = server.post("/v1/claims:done", json!({"claims": all})).await;
    assert_eq!(answered.status, 200);
    let answers = answered.body["answers"].as_array().unwrap();
    assert_eq!(answers[1..3], ["lost", "done"]);
    let mut of_one = [answers[0].as_str(), answers[3].as_str()];
    of_one.sort_unstable();
    assert_eq!((answers.len(), of_one), (4, [Some("done"), Some("lost")]));
    for key in ["1", "2", "3"] {
        assert_eq!(state(&server, key).await["state"], "done");
    }
}

#[tokio::test]
async fn of_several_none_is_done_if_one_cannot_be_used() {
    let server = Server::start();
    let claim = claimed(&server, "1", "30s").await;
    for (claims, said) in [
        (json!([claim, "7"]), "claim id is \"7\""),
        (json!([]), "claims is \"0\": allowed are 1 to 500 claims"),
        (json!(vec![&claim; 501]), "claims is \"501\""),
        (json!(claim), "claims cannot be used"),
    ] {
        server
            .post("/v1/claims:done", json!({"claims": claims}))
            .await
            .refuses(400, said);
    }
    assert_eq!(state(&server, "1").await["state"], "running");
}

#[tokio::test]
async fn an_attempt_that_failed_is_tried_again_as_often_as_its_kind_allows() {
    let kind = "[kinds.k]\ndeliver = \"pull\"\nattempts = 2\n";
    let server = Server::configured(&format!("{ANY_PORT}{kind}"));
    let claim = claimed(&server, "1", "30s").await;
    let retry = json!({"after": "0s", "reason": "no paper"});
    server
        .post(&format!("/v1/claims/{claim}/retry"), retry.clone())
        .await
        .is(200, "done");
    assert_eq!(state(&server, "1").await["last_error"], "no paper");
    let again = server
        .post("/v1/claims", json!({"kinds": ["k"], "wait": "30s"}))
        .await;
    let second = &again.body["claims"][0];
    assert_eq!(second["task"]["attempt"], 2);
    server
        .post(&format!("/v1/claims/{claim}/done"), json!({}))
        .await
        .is(409, "lost");
    let second = second["claim"].as_str().unwrap();
    server
        .post(&format!("/v1/claims/{second}/retry"), retry)
        .await
        .is(200, "done");
    let dead = state(&server, "1").await;
    assert_eq!(dead["state"], "dead");
    server
        .post("/v1/tasks/k/1/redrive", json!({}))
        .await
        .is(200, "done");
    assert_eq!(state(&server, "1").await["state"], "scheduled");
}

#[tokio::test]
async fn a_claim_is_snoozed_discarded_and_extended() {
    let server = Server::start();
    let claim = claimed(&server, "1", "30s").await;
    server
        .post(&format!("/v1/claims/{claim}/extend"), json!({"lease": "1h"}))
        .await
        .is(200, "done");
    server
        .post(&format!("/v1/claims/{claim}/snooze"), json!({"after": "1h"}))
        .await
        .is(200, "done");
    let snoozed = state(&server, "1").await;
    assert_eq!(
        (&snoozed["state"], &snoozed["attempt"]),
        (&json!("scheduled"), &json!(0))
    );
    let claim = claimed(&server, "2", "30s").await;
    server
        .post(
            &format!("/v1/claims/{claim}/discard"),
            json!({"reason": "no such customer"}),
        )
        .await
        .is(200, "done");
    let dead = state(&server, "2").await;
    assert_eq!(
        (&dead["state"], &dead["last_error"]),
        (&json!("dead"), &json!("no such customer"))
    );
}

#[tokio::test]
async fn a_worker_that_is_paused_beyond_its_lease_has_lost_its_claim() {
    let server = Server::start();
    let first = claimed(&server, "1", "1s").await;
    // It does nothing, and another one waits for work.
    let given = server
        .post(
            "/v1/claims",
            json!({"kinds": ["k"], "wait": "30s", "lease": "30s"}),
        )
        .await;
    let second = given.body["claims"][0]["claim"].as_str().unwrap();
    assert_ne!(first, second);
    for (end, body) in [
        ("done", json!({})),
        ("retry", json!({"after": "0s"})),
        ("extend", json!({"lease": "30s"})),
        ("snooze", json!({"after": "1h"})),
        ("discard", json!({"reason": "late"})),
    ] {
        server
            .post(&format!("/v1/claims/{first}/{end}"), body)
            .await
            .is(409, "lost");
    }
    assert_eq!(state(&server, "1").await["state"], "running");
    server
        .post(&format!("/v1/claims/{second}/done"), json!({}))
        .await
        .is(200, "done");
}

#[tokio::test]
async fn a_claim_outlives_the_server_that_gave_it() {
    let server = Server::start();
    let claim = claimed(&server, "1", "60s").await;
    let server = server.killed_and_started();
    server
        .post(&format!("/v1/claims/{claim}/done"), json!({}))
        .await
        .is(200, "done");
}

#[tokio::test]
async fn a_server_that_stops_ends_the_waiting() {
    let server = std::sync::Arc::new(Server::start());
    let waiting = {
        let server = server.clone();
        tokio::spawn(async move {
            server
                .post("/v1/claims", json!({"kinds": ["k"], "wait": "60s"}))
                .await
        })
    };
    server.catches_up().await;
    server.terminate();
    let given = tokio::time::timeout(Duration::from_secs(20), waiting)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(given.body, json!({"claims": []}));
}

#[tokio::test]
async fn what_cannot_be_used_is_refused_by_its_field() {
    let server = Server::start();
    for (body, said) in [
        (json!({}), "missing field `kinds`"),
        (json!({"kinds": []}), "kinds"),
        (
            json!({"kinds": vec!["k"; 10_000]}),
            "kinds is \"10000\": allowed are 1 to 100 kinds",
        ),
        (json!({"kinds": [""]}), "kind is"),
        (json!({"kinds": ["k"], "max": 0}), "max is"),
        (json!({"kinds": ["k"], "wait": "61s"}), "allowed is up to 60s"),
        (json!({"kinds": ["k"], "lease": "10ms"}), "lease"),
        (json!({"kinds": ["k"], "owner": "x".repeat(300)}), "owner"),
    ] {
        server.post("/v1/claims", body).await.refuses(400, said);
    }
    server
        .post("/v1/claims/7/done", json!({}))
        .await
        .refuses(400, "claim id is \"7\"");
    let claim = claimed(&server, "1", "30s").await;
    for (end, body, said) in [
        ("done", json!({"result": 1}), "unknown field `result`"),
        ("snooze", json!({}), "missing field `after`"),
        ("discard", json!({}), "missing field `reason`"),
        ("extend", json!({"lease": "2d"}), "lease"),
        ("retry", json!({"after": "later"}), "after cannot be used"),
    ] {
        server
            .post(&format!("/v1/claims/{claim}/{end}"), body)
            .await
            .refuses(400, said);
    }
    server
        .post(&format!("/v1/claims/{claim}/done"), json!({}))
        .await
        .is(200, "done");
}
