//! What changes by itself, in a real browser.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;

use super::PAGES;
use super::chromium::Chromium;
use super::sign_in::tokens;
use crate::server::{Answer, Server};

#[tokio::test]
async fn rows_change_in_place_and_what_is_typed_chosen_focused_and_scrolled_to_stays() {
    let server = Server::configured(&tokens(&[("operator", "\"read\", \"change\", \"schedule\"")]));
    let schedule = async |key: &str, after: &str| {
        let request = server.request(Method::PUT, &format!("/v1/tasks/k/{key}"));
        let request = request.bearer_auth("operator").json(&json!({"after": after}));
        Answer::of(request).await.is(201, "new");
    };
    for at in 0..40 {
        schedule(&format!("key-{at:02}"), &format!("{}m", 60 + at)).await;
    }
    let browser = Chromium::new(&server).await;
    browser.go("/tasks?kind=k").await;
    browser.sign_in("operator").await;
    browser.says("key-00").await;
    browser.says("Live").await;
    browser.click("tbody tr:nth-child(30) input").await;
    browser.says("1 chosen").await;
    browser.click("#to").await;
    browser.type_keys("+1").await;
    browser
        .run("window.loaded = 1; window.row = document.querySelector('tbody tr:nth-child(30)')")
        .await;
    let before = browser
        .run("return [scrollY > 0, row.getBoundingClientRect().top]")
        .await;
    assert_eq!(before[0], true);
    // It comes after what is seen, so that nothing has to give way.
    schedule("the-new-one", "1d").await;
    browser.says("the-new-one").await;
    let after = "return [window.loaded, row.isConnected && row.querySelector('input').checked, \
                 document.getElementById('to').value, document.activeElement.id, row.getBoundingClientRect().top]";
    let after = browser.run(after).await;
    assert_eq!(after, json!([1, true, "+1", "to", before[1]]));
    // What goes takes nothing else with it.
    let request = server.request(Method::POST, "/v1/tasks/k/key-05/cancel");
    let cancelled = Answer::of(request.bearer_auth("operator").json(&json!({}))).await;
    cancelled.is(200, "done");
    while browser.text().await.contains("key-05") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let still = "return [row.isConnected && row.querySelector('input').checked, document.activeElement.id]";
    assert_eq!(browser.run(still).await, json!([true, "to"]));
    browser.end_well().await;
}

#[tokio::test]
async fn a_page_says_that_its_session_has_ended() {
    let server = Server::configured(&tokens(&[("operator", "\"read\"")]));
    let browser = Chromium::new(&server).await;
    browser.go("/tasks").await;
    browser.sign_in("operator").await;
    browser.says("Live").await;
    server.reload(&tokens(&[("reader", "\"read\"")])).await;
    let title = "return document.getElementById('live').title";
    while browser.run(title).await != json!("The session has ended: load the page again to sign in") {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_page_that_is_paused_stays_as_it_is_until_it_goes_on() {
    let server = Server::start();
    let schedule = async |key: &str| {
        let path = format!("/v1/tasks/k/{key}");
        server.put(&path, json!({"after": "1h"})).await.is(201, "new");
    };
    schedule("the-first").await;
    let browser = Chromium::new(&server).await;
    browser.go("/tasks?kind=k").await;
    browser.says("Live").await;
    browser.click("#live").await;
    browser.says("Paused").await;
    // The page would have heard what this hears, and have had its time to show it.
    let heard = "const told = arguments[0]; const events = new EventSource('/live'); \
                 events.onopen = () => { window.hears = new Promise((heard) => \
                 events.addEventListener('scheduled', () => setTimeout(heard, 2500))); told(true); };";
    assert_eq!(browser.run_async(heard).await, true);
    schedule("the-second").await;
    browser.run_async("window.hears.then(arguments[0])").await;
    assert!(!browser.text().await.contains("the-second"));
    browser.click("#live").await;
    browser.says("the-second").await;
    browser.end_well().await;
}

#[tokio::test]
async fn times_are_local_and_in_utc_when_they_are_pointed_at() {
    let server = Server::start();
    let new = json!({"at": "2099-01-01T12:30:00Z"});
    server.put("/v1/tasks/k/1", new).await.is(201, "new");
    let browser = Chromium::new(&server).await;
    browser.be_at("Asia/Kolkata").await;
    browser.go("/tasks").await;
    browser.says("2099-01-01 18:00:00").await;
    let told = browser
        .run("return document.querySelector('td time').title")
        .await;
    assert_eq!(told, "2099-01-01 12:30:00 UTC");
    let distance = browser
        .run("return document.querySelector('td .ago').innerText")
        .await;
    assert!(distance.as_str().unwrap().starts_with("in 26,"), "{distance}");
    browser.end_well().await;
}

#[tokio::test]
async fn a_cancel_is_undone_while_its_seconds_are_counted_and_not_after_them() {
    let server = Server::start();
    server
        .put("/v1/tasks/k/1", json!({"after": "1h"}))
        .await
        .is(201, "new");
    let id = server.get("/v1/tasks/k/1").await.body["id"].clone();
    let browser = Chromium::new(&server).await;
    browser.go(&format!("/tasks/{}", id.as_str().unwrap())).await;
    browser.click("button.danger").await;
    browser.says("Cancelled: it will not run.").await;
    browser.says("for ").await;
    browser.click("form[data-until] button").await;
    browser.says("Undone: this is the task that stands for it").await;
    assert_eq!(server.get("/v1/tasks/k/1").await.body["state"], "scheduled");
    browser.click("button.danger").await;
    browser.says("Cancelled: it will not run.").await;
    browser.says("It cannot be undone any more").await;
    let button = "return document.querySelector('form[data-until]')";
    assert_eq!(browser.run(button).await, json!(null));
    browser.end_well().await;
}

#[tokio::test]
async fn a_visitor_who_is_signed_in_and_follows_a_link_from_elsewhere_does_not_sign_in_again() {
    let server = Server::configured(&tokens(&[("operator", "\"read\"")]));
    let browser = Chromium::new(&server).await;
    browser.go("/").await;
    browser.sign_in("operator").await;
    browser.says("Nothing is late.").await;
    // To a browser that is another site.
    let elsewhere = server.url.replace("127.0.0.1", "localhost");
    browser.at(&elsewhere).await;
    browser.says("Token").await;
    browser
        .run(&format!("location.href = '{}/dead'", server.url))
        .await;
    browser.says("No task is dead.").await;
}

#[tokio::test]
async fn a_visitor_of_many_pages_does_not_wait_for_those_that_are_left() {
    let server = Server::start();
    let browser = Chromium::new(&server).await;
    for _ in 0..3 {
        for path in PAGES {
            let gone = browser.go(path);
            // A browser would have no connection left by then, and wait for one.
            let gone = tokio::time::timeout(Duration::from_secs(45), gone).await;
            gone.unwrap_or_else(|_| panic!("{path} does not come"));
        }
    }
    browser.end_well().await;
}
