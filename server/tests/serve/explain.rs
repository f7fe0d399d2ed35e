//! Where a task stands, and what has happened to it.

use reqwest::Method;
use serde_json::{Value, json};

use crate::access::TOKENS;
use crate::server::{ANY_PORT, Answer, Server, check};

fn events(explained: &Value) -> Vec<&str> {
    let history = explained["history"].as_array().unwrap();
    history
        .iter()
        .map(|entry| entry["event"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn a_task_is_explained_with_who_did_what_and_why() {
    let server = Server::configured(&format!("{ANY_PORT}{TOKENS}"));
    let ask = async |method: Method, path: &str, body: Value| {
        let token = if method == Method::GET { "reader" } else { "shop" };
        Answer::of(server.request(method, path).bearer_auth(token).json(&body)).await
    };
    ask(
        Method::PUT,
        "/v1/tasks/k/1",
        json!({"at": "2099-01-01T08:00:00Z"}),
    )
    .await
    .is(201, "new");
    let moved = json!({"by": "+1h", "reason": "the customer has called"});
    ask(Method::POST, "/v1/tasks/k/1/shift", moved)
        .await
        .is(200, "done");
    let explained = ask(Method::GET, "/v1/tasks/k/1?explain=1", json!({})).await;
    assert_eq!(
        (explained.status.as_u16(), explained.etag.as_deref()),
        (200, Some("\"2\""))
    );
    let explained = explained.body;
    assert_eq!(events(&explained), ["scheduled", "moved"]);
    let moved = &explained["history"][1];
    assert_eq!(
        (
            &moved["actor"],
            &moved["reason"],
            &moved["due_before"],
            &moved["due_at"]
        ),
        (
            &json!("api:shop"),
            &json!("the customer has called"),
            &json!("2099-01-01T08:00:00Z"),
            &json!("2099-01-01T09:00:00Z")
        )
    );
    // Of the task all that is shown without it.
    let plain = ask(Method::GET, "/v1/tasks/k/1", json!({})).await.body;
    for (field, value) in plain.as_object().unwrap() {
        assert_eq!(&explained[field], value, "{field}");
    }
    assert_eq!(plain["history"], Value::Null);
    assert_eq!(explained["wake"]["backend"], "look-ahead");
    let words = explained["words"][0].as_str().unwrap();
    assert!(
        words.starts_with("Scheduled, due at 2099-01-01T09:00:00Z (in "),
        "{words}"
    );
    let id = plain["id"].as_str().unwrap();
    let by_id = ask(Method::GET, &format!("/v1/tasks/id/{id}?explain=1"), json!({})).await;
    assert_eq!(events(&by_id.body), ["scheduled", "moved"]);

    // Of those that match, each.
    let all = json!({"filter": {"kind": "k"}, "reason": "the shop is closed"});
    assert_eq!(
        ask(Method::POST, "/v1/tasks:cancel", all).await.body["answers"]["done"],
        1
    );
    let cancelled = ask(Method::GET, "/v1/tasks/k/1?explain=1", json!({})).await.body;
    let words = cancelled["words"][0].as_str().unwrap();
    assert!(words.ends_with(" by api:shop (the shop is closed)."), "{words}");
}

#[tokio::test]
async fn what_cannot_be_explained_is_refused() {
    let server = Server::start();
    server
        .get("/v1/tasks/k/1?explain=1")
        .await
        .refuses(404, "no such task");
    server
        .put("/v1/tasks/k/1", json!({"after": "1h"}))
        .await
        .is(201, "new");
    server
        .get("/v1/tasks/k/1?explain=2")
        .await
        .refuses(400, "explain");
    server
        .get("/v1/tasks/k/1?explane=1")
        .await
        .refuses(400, "explane");
    let long = json!({"reason": "ü".repeat(501)});
    for verb in ["/k/1/cancel", ":cancel"] {
        let path = format!("/v1/tasks{verb}");
        let mut body = long.clone();
        if verb.starts_with(':') {
            body["filter"] = json!({"kind": "k"});
        }
        server
            .post(&path, body)
            .await
            .refuses(400, "reason is 501 characters long: allowed are up to 500");
    }
    let fits = json!({"reason": "ü".repeat(500)});
    server.post("/v1/tasks/k/1/cancel", fits).await.is(200, "done");
}

#[tokio::test]
async fn history_is_kept_as_the_configuration_says() {
    for (mode, expected) in [("off", 0), ("changes", 1), ("all", 1)] {
        let server = Server::configured(&format!("history = \"{mode}\"\n{ANY_PORT}"));
        server
            .put("/v1/tasks/k/1", json!({"after": "1h"}))
            .await
            .is(201, "new");
        let explained = server.get("/v1/tasks/k/1?explain=1").await.body;
        assert_eq!(events(&explained).len(), expected, "{mode}");
    }
    let wrong = check("history = \"some\"\n");
    let said = String::from_utf8(wrong.stderr).unwrap();
    assert!(said.contains("line 1: ") && said.contains("`changes`"), "{said}");
}
