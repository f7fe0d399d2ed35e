//! What operators ask most, each answered within two clicks on a telephone.

use serde_json::json;
use thirtyfour::Key;

use super::chromium::Chromium;
use super::dead::dead;
use crate::server::Server;

/// Clicks what is first of those that a thumb reaches.
async fn tap(browser: &Chromium, css: &str) {
    let reached = format!(
        "const it = document.querySelector({css:?}); it.scrollIntoView({{ block: 'center' }}); \
         const {{ x, y, width, height }} = it.getBoundingClientRect(); \
         const top = document.elementFromPoint(x + width / 2, y + height / 2); \
         return x >= 0 && x + width <= innerWidth && (it.contains(top) || top.contains(it))"
    );
    assert_eq!(browser.run(&reached).await, true, "{css} cannot be reached");
    browser.click(css).await;
}

#[tokio::test]
async fn six_questions_are_answered_within_two_clicks_on_a_telephone() {
    let server = Server::start();
    for key in ["order-7", "order-8"] {
        let path = format!("/v1/tasks/order.cancel/{key}");
        server.put(&path, json!({"after": "30m"})).await.is(201, "new");
    }
    let moved = json!({"by": "+1m", "reason": "the customer called"});
    let moved = server.post("/v1/tasks/order.cancel/order-7/shift", moved).await;
    moved.is(200, "done");
    dead(&server, "mail", "503 from the mail server", 2).await;
    server
        .put("/v1/tasks/slow/1", json!({"after": "0s"}))
        .await
        .is(201, "new");
    let browser = Chromium::new(&server).await;
    browser.be_wide(390).await;

    // Is anything late? No click.
    loop {
        browser.go("/").await;
        if browser.text().await.contains("1 task is late, the oldest by ") {
            break;
        }
    }
    // What is due within an hour? How many: no click; which: one.
    tap(&browser, ".tile[href='/tasks?due=1h']").await;
    browser.says("order-8").await;

    // Where is the order? One for the search, and one to the task, which says who has moved it, and why.
    browser.go("/").await;
    tap(&browser, "#q").await;
    browser.type_keys("order-7" + Key::Enter).await;
    browser.says("With the key “order-7”").await;
    tap(&browser, "#exact + .scroll tbody th a").await;
    browser.says("moved by api:anybody").await;
    browser.says("the customer called").await;

    // What has failed? One click; and with another one it runs again.
    browser.go("/").await;
    tap(&browser, ".menu a[href='/dead']").await;
    browser.says("503 from the mail server").await;
    tap(&browser, "button[value=redrive]").await;
    browser.says("redriven: they have another life").await;
    let left = server.get("/v1/tasks?kind=mail&state=dead").await.body;
    assert_eq!(left["tasks"], json!([]));

    // Stop this kind: two.
    browser.go("/").await;
    tap(&browser, ".menu a[href='/kinds']").await;
    browser.says("Started a minute").await;
    tap(&browser, "button[aria-label='Pause slow']").await;
    browser.says("slow: Paused").await;
    let kinds = server.get("/v1/kinds").await.body;
    let kinds = kinds["kinds"].as_array().unwrap();
    let slow = kinds.iter().find(|kind| kind["kind"] == "slow").unwrap();
    assert!(slow["paused"].is_object(), "{slow}");
    browser.end_well().await;
}
