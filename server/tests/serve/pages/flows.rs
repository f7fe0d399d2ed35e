//! What operators come for, in a real browser.

use std::time::Duration;

use serde_json::{Value, json};
use thirtyfour::Key;

use super::chromium::Chromium;
use super::dead::dead;
use crate::server::Server;

#[tokio::test]
async fn an_order_is_found_moved_and_cancelled_by_the_keyboard_alone() {
    let server = Server::start();
    for order in 1..=3 {
        let path = format!("/v1/tasks/order.cancel/order-{order}");
        server.put(&path, json!({"after": "1h"})).await.is(201, "new");
    }
    let order = async || server.get("/v1/tasks/order.cancel/order-2").await.body;
    let before = order().await["due_at"].clone();
    let browser = Chromium::new(&server).await;
    browser.go("/").await;
    browser.tab_to("it.className === 'skip'").await;
    browser.tab_to("it.name === 'q'").await;
    browser.type_keys("order-2" + Key::Enter).await;
    browser.says("With the key “order-2”").await;
    browser.tab_to("it.innerText === 'order-2'").await;
    browser.type_keys(Key::Enter + "").await;
    browser.says("of the kind order.cancel").await;
    browser.tab_to("it.name === 'to'").await;
    browser.type_keys("+10m" + Key::Enter).await;
    browser.says("Moved.").await;
    let minutes = |time: &Value| time.as_str().unwrap().parse::<delayline::Timestamp>().unwrap();
    let moved = minutes(&order().await["due_at"]).millis_since(minutes(&before));
    assert_eq!(moved, 600_000);
    browser.tab_to("it.innerText === 'Show it'").await;
    browser.type_keys(Key::Enter + "").await;
    browser.says("Hide it").await;
    browser.tab_to("it.innerText === 'Edit it'").await;
    browser.type_keys(Key::Enter + "").await;
    browser.says("New payload, in JSON").await;
    // A text that is not typed over is the payload of now; one that is stays, as what was written over what was shown.
    let form = "const form = document.querySelector('[action$=edit]'); return [form.text.value, form.revision.value]";
    let edit = async |payload: &str| {
        let path = "/v1/tasks/order.cancel/order-2/edit";
        server
            .post(path, json!({ "payload": payload }))
            .await
            .is(200, "done");
    };
    edit("first").await;
    browser.says("edited by api:anybody").await;
    let shown = browser.run(form).await;
    assert_eq!(shown[0], "\"first\"");
    browser.until_focused("text").await;
    browser.type_keys(Key::Control + "a").await;
    browser.type_keys("[\"mine\"]").await;
    edit("second").await;
    let both = "return document.body.innerText.split('edited by api:anybody').length === 3";
    while browser.run(both).await != true {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(browser.run(form).await, json!(["[\"mine\"]", shown[1]]));
    browser
        .go(&format!(
            "/tasks/{}?payload=edit",
            order().await["id"].as_str().unwrap()
        ))
        .await;
    browser.until_focused("text").await;
    browser.type_keys(Key::Control + "a").await;
    browser.type_keys("[\"mine\"]").await;
    browser.tab_to("it.innerText === 'Save'").await;
    browser.type_keys(Key::Enter + "").await;
    browser.says("Its payload was changed").await;
    assert_eq!(order().await["payload"], json!(["mine"]));
    browser.tab_to("it.innerText === 'Cancel the task'").await;
    browser.type_keys(Key::Enter + "").await;
    browser.says("Cancelled: it will not run.").await;
    assert_eq!(order().await["state"], "cancelled");
    browser.end_well().await;
}

#[tokio::test]
async fn a_kind_is_paused_and_the_dead_of_one_error_are_redriven() {
    let server = Server::start();
    dead(&server, "mail", "502 from mail", 3).await;
    dead(&server, "mail", "no such address", 1).await;
    let browser = Chromium::new(&server).await;
    browser.go("/kinds").await;
    browser.click("summary").await;
    browser.click("#reason-1").await;
    browser.type_keys("the mail server is being moved").await;
    browser.click("details button").await;
    browser.says("mail: Paused").await;
    browser.says("the mail server is being moved").await;
    let kinds = server.get("/v1/kinds").await.body;
    assert!(kinds["kinds"][0]["paused"].is_object(), "{kinds}");
    browser.click(".menu a[href='/dead']").await;
    browser.says("no such address").await;
    browser.click("tbody tr button").await;
    browser.says("redriven: they have another life").await;
    let left = server.get("/v1/tasks?kind=mail&state=dead").await.body;
    assert_eq!(left["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(left["tasks"][0]["last_error"], "no such address");
    browser.end_well().await;
}

#[tokio::test]
async fn many_are_counted_before_they_are_cancelled() {
    let server = Server::start();
    for order in 0..12 {
        let path = format!("/v1/tasks/k/order-{order}");
        server.put(&path, json!({"after": "1h"})).await.is(201, "new");
    }
    let waiting = async || {
        let listed = server.get("/v1/tasks?kind=k").await.body;
        listed["tasks"].as_array().unwrap().len()
    };
    let browser = Chromium::new(&server).await;
    browser.go("/tasks?kind=k").await;
    browser.click("tbody tr:nth-child(2) input").await;
    browser.click("tbody tr:nth-child(4) input").await;
    browser.click("button[value=cancel]").await;
    browser.says("Cancel 2 tasks?").await;
    assert_eq!(waiting().await, 12);
    browser.click("main form button").await;
    browser.says("cancelled: they will not run").await;
    assert_eq!(waiting().await, 10);
    browser.go("/tasks?kind=k&q=order-1&state=scheduled").await;
    browser.click("#which option[value=all]").await;
    browser.click("button[value=cancel]").await;
    browser.says("Key begins with").await;
    browser.click("main form button").await;
    browser.says("cancelled: they will not run").await;
    let left = server.get("/v1/tasks?kind=k&key_prefix=order-1").await.body;
    assert_eq!(left["tasks"], json!([]));
    browser.end_well().await;
}
