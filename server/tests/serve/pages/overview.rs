//! Whether anything is late.

use std::time::Duration;

use serde_json::json;

use super::browser::Browser;
use crate::server::Server;

#[tokio::test]
async fn what_is_late_is_said_first_and_what_is_paused_is_not_late() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let none = browser.get("/").await;
    none.says("Nothing is late.");
    none.says("There are no tasks yet");
    none.says("This server has started none since");
    for key in ["1", "2", "3"] {
        let path = format!("/v1/tasks/slow.kind/{key}");
        server.put(&path, json!({"after": "0s"})).await.is(201, "new");
    }
    server
        .put("/v1/tasks/slow.kind/4", json!({"after": "30m"}))
        .await
        .is(201, "new");
    // No worker asks for claims, so they become late.
    let late = loop {
        let page = browser.get("/").await;
        if page.text.contains("3 tasks are late, the oldest by ") {
            break page;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    late.says(" s: <a href=\"/tasks?kind=slow.kind\">slow.kind</a></h1>");
    late.says(r#"<th scope="row"><a href="/tasks?due=5m">5 minutes</a></th><td class="number">3</td>"#);
    late.says(r#"<th scope="row"><a href="/tasks?due=1h">1 hour</a></th><td class="number">4</td>"#);
    let paused = server
        .post("/v1/kinds/slow.kind/pause", json!({"reason": "no disk"}))
        .await;
    assert_eq!(paused.status, 200);
    let page = browser.get("/").await;
    page.says("Nothing is late.");
    page.says(">slow.kind</a> is paused: no disk. 3 tasks are due and waiting.");
}

#[tokio::test]
async fn what_fails_is_late_though_each_retry_moves_its_time_and_the_first_lines_lead_to_it() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let claim = async || {
        let body = json!({"kinds": ["mail.send"], "wait": "30s"});
        let given = server.post("/v1/claims", body).await.body;
        given["claims"][0]["claim"].as_str().unwrap().to_owned()
    };
    let task = server
        .put("/v1/tasks/mail.send/order-42", json!({"after": "0s"}))
        .await;
    let id = task.is(201, "new")["id"].as_str().unwrap().to_owned();
    let retry = json!({"reason": "answered 503 <b>no</b>", "after": "1h"});
    let path = format!("/v1/claims/{}/retry", claim().await);
    server.post(&path, retry).await.is(200, "done");
    let late = loop {
        let page = browser.get("/").await;
        if !page.text.contains("Nothing is late.") {
            break page;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    late.says("1 task is late, the oldest by ");
    late.says(": <a href=\"/tasks?kind=mail.send\">mail.send</a>, which keeps failing</h1>");
    late.says(&format!("<a href=\"/tasks/{id}\">order-42</a> is late by "));
    late.says("as “answered 503 &#60;b&#62;no&#60;/b&#62;”</p>");
    let leads = late
        .attributes("href")
        .find(|to| to.contains("error="))
        .unwrap()
        .replace("&#38;", "&");
    browser.get(&leads).await.says("order-42");
    let paused = server.post("/v1/kinds/mail.send/pause", json!({})).await;
    assert_eq!(paused.status, 200);
    browser.get("/").await.says("Nothing is late.");
}

#[tokio::test]
async fn kinds_are_counted_by_state_and_how_late_tasks_start_is_told() {
    let server = Server::start();
    let browser = Browser::new(&server);
    for (key, after) in [("1", "0s"), ("2", "1h"), ("3", "1h")] {
        let path = format!("/v1/tasks/k/{key}");
        server.put(&path, json!({"after": after})).await.is(201, "new");
    }
    server
        .post("/v1/tasks/k/3/cancel", json!({}))
        .await
        .is(200, "done");
    let claims = server.post("/v1/claims", json!({"kinds": ["k"]})).await.body;
    assert_eq!(claims["claims"].as_array().unwrap().len(), 1);
    let page = browser.get("/").await;
    for (state, count) in [("running", 1), ("done", 0), ("dead", 0), ("cancelled", 1)] {
        page.says(&format!(
            r#"<a href="/tasks?kind=k&amp;state={state}">{count}</a>"#
        ));
    }
    page.says(r#"<a href="/tasks?kind=k">1</a>"#);
    page.says("99 of 100 within");
    page.says("<dt>Started by</dt><dd>claims (100 %)</dd>");
    page.says("Those that this server has started since");
}
