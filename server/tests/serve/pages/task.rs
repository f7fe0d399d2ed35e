//! One task, and what is done with it.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::browser::{Browser, Page};
use crate::server::{ANY_PORT, Server};

async fn scheduled(server: &Server, key: &str, after: &str) -> String {
    let body = json!({"after": after, "payload": {"card": "4111"}});
    let task = server.put(&format!("/v1/tasks/k/{key}"), body).await;
    task.is(201, "new")["id"].as_str().unwrap().to_owned()
}

/// What comes of a form: the page to which it leads.
async fn done(browser: &Browser, id: &str, verb: &str, fields: &[(&str, &str)]) -> Page {
    let sent = browser.post(&format!("/tasks/{id}/{verb}"), fields).await;
    browser.get(sent.location()).await
}

#[tokio::test]
async fn verbs_are_answered_in_words() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let id = scheduled(&server, "1", "1h").await;
    let due = async || server.get("/v1/tasks/k/1").await.body["due_at"].clone();
    done(&browser, &id, "move", &[("to", " 2099-01-01T00:00:00Z ")])
        .await
        .says("Moved.");
    assert_eq!(due().await, "2099-01-01T00:00:00Z");
    done(&browser, &id, "move", &[("to", "+1h 30m")])
        .await
        .says("Moved.");
    assert_eq!(due().await, "2099-01-01T01:30:00Z");
    let refused = browser
        .post(&format!("/tasks/{id}/move"), &[("to", "tomorrow")])
        .await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    refused.says("such as 15m");
    refused.says("<p class=\"wrong\" id=\"to-wrong\">");
    refused.says("name=\"to\" value=\"tomorrow\"");
    done(&browser, &id, "run", &[]).await.says("It is due now");

    let claims = server.post("/v1/claims", json!({"kinds": ["k"]})).await.body;
    let claim = claims["claims"][0]["claim"].as_str().unwrap().to_owned();
    let page = done(&browser, &id, "cancel", &[]).await;
    page.says("Too late: it is running.");
    page.says("Lease until");
    page.does_not_say("Cancel the task");
    let discard = json!({"reason": "card <b>refused</b>"});
    let ended = server.post(&format!("/v1/claims/{claim}/discard"), discard).await;
    assert_eq!(ended.status, 200, "{ended:?}");
    let page = done(&browser, &id, "cancel", &[]).await;
    page.says("Nothing was changed: it has ended already.");
    page.says("refused");
    page.does_not_say("<b>refused");
    done(&browser, &id, "redrive", &[]).await.says("Redriven");
    done(&browser, &id, "redrive", &[])
        .await
        .says("Nothing was changed: it is not dead");
    done(&browser, &id, "cancel", &[])
        .await
        .says("Cancelled: it will not run.");
    assert_eq!(server.get("/v1/tasks/k/1").await.body["state"], "cancelled");
    done(&browser, &id, "dismiss", &[])
        .await
        .says("Nothing was changed: it has ended already.");
    let unknown = browser.post(&format!("/tasks/{id}/eat"), &[]).await;
    assert_eq!(unknown.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_dead_task_is_dismissed_and_no_other() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let id = scheduled(&server, "1", "1h").await;
    let button = format!(r#"formaction="/tasks/{id}/dismiss""#);
    let page = done(&browser, &id, "dismiss", &[]).await;
    page.says("Nothing was changed: it is not dead.");
    page.does_not_say(&button);
    server.post("/v1/tasks/k/1/run", json!({})).await.is(200, "done");
    let claims = server.post("/v1/claims", json!({"kinds": ["k"]})).await.body;
    let claim = claims["claims"][0]["claim"].as_str().unwrap().to_owned();
    let discard = json!({"reason": "no stock"});
    let ended = server.post(&format!("/v1/claims/{claim}/discard"), discard).await;
    assert_eq!(ended.status, 200, "{ended:?}");
    browser.get(&format!("/tasks/{id}")).await.says(&button);
    let page = done(&browser, &id, "dismiss", &[("reason", "no longer wanted")]).await;
    page.says("Dismissed: it has ended for good.");
    page.says("no longer wanted");
    page.does_not_say(&button);
    assert_eq!(server.get("/v1/tasks/k/1").await.body["state"], "cancelled");
}

#[tokio::test]
async fn a_task_that_has_ended_is_run_again() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let id = scheduled(&server, "1", "1h").await;
    let button = format!(r#"formaction="/tasks/{id}/rerun""#);
    let page = done(&browser, &id, "rerun", &[]).await;
    page.says("Nothing was done: it has not ended");
    page.does_not_say(&button);
    let page = done(&browser, &id, "cancel", &[]).await;
    page.says(&button);
    let page = done(&browser, &id, "rerun", &[("reason", "paid after all")]).await;
    page.says("This is the new task: it is due now.");
    page.says(&format!("again after {id}: paid after all"));
    let new = server.get("/v1/tasks/k/1").await.body;
    assert_ne!(new["id"], id.as_str());
    assert_eq!(new["payload"], json!({"card": "4111"}));
}

#[tokio::test]
async fn what_has_happened_is_told_with_actor_and_reason() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let id = scheduled(&server, "1", "1h").await;
    let why = "the customer <b>called</b>";
    let moved = [("to", "+1h"), ("reason", why)];
    let page = done(&browser, &id, "move", &moved).await;
    page.says("Scheduled, due at ");
    page.does_not_say("<b>called");
    let page = page.text;
    let (latest, first) = page.split_once("<strong>scheduled</strong>").unwrap();
    for told in [
        "<strong>moved</strong>",
        ">page:anybody</span>",
        "the customer &#60;b&#62;called",
    ] {
        assert!(latest.contains(told), "{told}: {page}");
    }
    assert!(first.contains(">api:anybody</span>"), "{page}");
    let too_long = "x".repeat(501);
    let path = format!("/tasks/{id}/cancel");
    let refused = browser.post(&path, &[("reason", &too_long)]).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    refused.says("reason is 501 characters long: allowed are up to 500");
}

#[tokio::test]
async fn a_page_leads_to_the_trace_in_which_its_task_was_made() {
    let config = format!("{ANY_PORT}trace_url = \"https://traces.example/?a=b&id={{trace_id}}\"\n");
    let server = Server::configured(&config);
    let browser = Browser::new(&server);
    let page = async |traceparent: &str| {
        let body = json!({"kind": "k", "after": "1h", "headers": {"traceparent": traceparent}});
        let task = server.post("/v1/tasks", body).await.is(201, "new").clone();
        browser
            .get(&format!("/tasks/{}", task["id"].as_str().unwrap()))
            .await
    };
    let trace = "0af7651916cd43dd8448eb211c80319c";
    let page_of_one = page(&format!("00-{trace}-b7ad6b7169203331-01")).await;
    page_of_one.says(&format!(
        r#"<a href="https://traces.example/?a=b&#38;id={trace}">{trace}</a>"#
    ));
    let garbled = page("00-1-2-01").await;
    garbled.says("00-1-2-01");
    garbled.does_not_say("traces.example");
}

#[tokio::test]
async fn a_payload_is_hidden_until_it_is_asked_for_and_then_is_text() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let id = scheduled(&server, "1", "1h").await;
    let path = format!("/tasks/{id}");
    let page = browser.get(&path).await;
    page.does_not_say("4111");
    page.says("15 bytes");
    let shown = browser.get(&format!("{path}?payload=shown")).await;
    shown.says("{\n  &#34;card&#34;: &#34;4111&#34;\n}");
    // A list has none at all.
    browser.get("/tasks").await.does_not_say("4111");
}

#[tokio::test]
async fn a_task_that_is_not_there_is_said_to_be_none() {
    let server = Server::start();
    let browser = Browser::new(&server);
    scheduled(&server, "1", "1h").await;
    let id = "00000000-0000-7000-8000-000000000000";
    for page in [
        browser.get(&format!("/tasks/{id}")).await,
        browser.post(&format!("/tasks/{id}/cancel"), &[]).await,
    ] {
        assert_eq!(page.status, StatusCode::NOT_FOUND);
        page.says("there is no such task");
    }
    // As a page, and not as the interface for programs says it.
    assert!(serde_json::from_str::<Value>(&browser.get("/tasks/1").await.text).is_err());
}
