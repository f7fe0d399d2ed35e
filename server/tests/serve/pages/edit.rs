//! Giving a task another payload.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::browser::{Browser, Page};
use crate::server::{Server, text};

const PATH: &str = "/v1/tasks/k/1";

/// A server with a task of this payload, and its id.
async fn with_a_task(payload: Value) -> (Server, Browser, String) {
    let server = Server::start();
    let body = json!({"at": "2099-01-01T00:00:00Z", "payload": payload});
    let task = server.put(PATH, body).await.is(201, "new").clone();
    let browser = Browser::new(&server);
    (server, browser, task["id"].as_str().unwrap().to_owned())
}

/// Sends the form of a page with this text in it.
async fn saved(browser: &Browser, form: &Page, id: &str, text: &str) -> Page {
    let path = format!("/tasks/{id}/edit");
    let mut fields = form.form(&path);
    fields.retain(|(name, _)| name != "csrf");
    fields.push(("text".to_owned(), text.to_owned()));
    fields.push(("reason".to_owned(), "a typo".to_owned()));
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    browser.post(&path, &fields).await
}

async fn form(browser: &Browser, id: &str) -> Page {
    browser.get(&format!("/tasks/{id}?payload=edit")).await
}

#[tokio::test]
async fn a_payload_is_edited_where_it_is_shown_and_its_time_stays() {
    let (server, browser, id) = with_a_task(json!({"no": 1, "to": "Ada <b>"})).await;
    let hidden = browser.get(&format!("/tasks/{id}")).await;
    hidden.does_not_say("payload=edit");
    let link = format!("href=\"/tasks/{id}?payload=edit\"");
    browser
        .get(&format!("/tasks/{id}?payload=shown"))
        .await
        .says(&link);
    let form = form(&browser, &id).await;
    form.says("{\n  &#34;no&#34;: 1,\n  &#34;to&#34;: &#34;Ada &#60;b&#62;&#34;\n}</textarea>");
    form.does_not_say("<pre");
    // As a browser sends the lines of a text.
    let sent = "{\r\n  \"to\": \"Bob  B.\",\r\n  \"no\": 12345678901234567890.10\r\n}";
    let done = saved(&browser, &form, &id, sent).await;
    let page = browser.get(done.location()).await;
    page.says("Its payload was changed; its time is as it was.");
    page.says("&#34;Bob  B.&#34;");
    page.says("<strong>edited</strong> by <span class=\"by\">page:anybody</span>");
    page.says("a typo");
    let task = text(server.request(reqwest::Method::GET, PATH)).await;
    for kept in [
        r#""payload":{"to":"Bob  B.","no":12345678901234567890.10}"#,
        r#""due_at":"2099-01-01T00:00:00Z""#,
    ] {
        assert!(task.contains(kept), "{task}");
    }
}

#[tokio::test]
async fn what_was_typed_is_kept_where_another_caller_was_first() {
    let (server, browser, id) = with_a_task(json!(1)).await;
    let edit = json!({"payload": "of another <caller>"});
    let first = form(&browser, &id).await;
    server.post(&format!("{PATH}/edit"), edit).await.is(200, "done");
    let refused = saved(&browser, &first, &id, "[\"mine\"]").await;
    assert_eq!(refused.status, StatusCode::CONFLICT);
    refused.says("<p class=\"wrong\" id=\"text-wrong\">nothing was changed, as the task has been changed");
    refused.says("&#34;of another &#60;caller&#62;&#34;</pre>");
    refused.says("[&#34;mine&#34;]</textarea>");
    assert_eq!(
        server.get(PATH).await.body["payload"],
        json!("of another <caller>")
    );
    // Now it has been seen.
    let done = saved(&browser, &refused, &id, "[\"mine\"]").await;
    assert!(done.location().contains("said=edit.done"), "{done:?}");
    assert_eq!(server.get(PATH).await.body["payload"], json!(["mine"]));
    let without = [("text", "2"), ("payload", "edit")];
    let refused = browser.post(&format!("/tasks/{id}/edit"), &without).await;
    assert_eq!(refused.status, StatusCode::CONFLICT, "of no revision");
}

#[tokio::test]
async fn what_cannot_be_a_payload_is_kept_with_what_is_wrong_with_it() {
    let (server, browser, id) = with_a_task(json!(1)).await;
    let form = form(&browser, &id).await;
    let deep = format!("{}{}", "[".repeat(121), "]".repeat(121));
    for (text, said) in [
        ("{\n\"a\": }", "the payload is no JSON: expected value at line 2"),
        ("1 2", "the payload is no JSON"),
        ("", "the payload is no JSON"),
        (&deep, "121 levels of arrays and objects"),
    ] {
        let refused = saved(&browser, &form, &id, text).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{text}");
        refused.says(said);
        let written = text.replace('"', "&#34;");
        refused.says(&format!("{written}</textarea>"));
    }
    let path = format!("/tasks/{id}/edit");
    let long = "x".repeat(501);
    let fields = [("text", "7"), ("payload", "edit"), ("reason", &long)];
    let refused = browser.post(&path, &fields).await;
    refused.says("id=\"edit-reason-wrong\">reason is 501 characters long");
    refused.says("7</textarea>");
    assert_eq!(server.get(PATH).await.body["version"], 1);
}

#[tokio::test]
async fn what_cannot_be_edited_is_not_offered_to_be() {
    let (server, browser, id) = with_a_task(json!("x".repeat(20_000))).await;
    let shown = form(&browser, &id).await;
    shown.says("xxx");
    shown.does_not_say("<textarea");
    shown.does_not_say("Edit it");
    let edit = server.post(&format!("{PATH}/edit"), json!({"payload": 1})).await;
    edit.is(200, "done");
    let open = form(&browser, &id).await;
    open.says("<textarea");
    server
        .post(&format!("{PATH}/cancel"), json!({}))
        .await
        .is(200, "done");
    form(&browser, &id).await.does_not_say("<textarea");
    let late = saved(&browser, &open, &id, "2").await;
    let page = browser.get(late.location()).await;
    page.says("Nothing was changed: it has ended already.");
    assert_eq!(server.get(PATH).await.body["payload"], 1);
    let none = browser
        .post(
            "/tasks/00000000-0000-7000-8000-000000000000/edit",
            &[("text", "2")],
        )
        .await;
    assert_eq!(none.status, StatusCode::NOT_FOUND);
}
