//! What changes by itself, in a real browser.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use thirtyfour::Key;

use super::PAGES;
use super::chromium::Chromium;
use super::sign_in::tokens;
use crate::server::{Answer, Server};

#[tokio::test]
async fn what_happens_is_shown_without_loading_the_page_again_unless_somebody_types() {
    let server = Server::configured(&tokens(&[("operator", "\"read\", \"change\", \"schedule\"")]));
    let schedule = async |key: &str| {
        let request = server.request(Method::PUT, &format!("/v1/tasks/k/{key}"));
        let request = request.bearer_auth("operator").json(&json!({"after": "1h"}));
        Answer::of(request).await.is(201, "new");
    };
    schedule("the-first").await;
    let browser = Chromium::new(&server).await;
    browser.go("/tasks?kind=k").await;
    browser.says("Token").await;
    browser.type_keys("operator" + Key::Enter).await;
    browser.says("the-first").await;
    browser.says("This page is live.").await;
    browser.run("window.loaded = 1").await;
    schedule("the-second").await;
    browser.says("the-second").await;
    assert_eq!(
        browser.run("return window.loaded").await,
        1,
        "it was not loaded again"
    );

    browser.click("#to").await;
    browser.type_keys("+1").await;
    // The page hears what this hears, and has had its time to show it.
    let heard = "const told = arguments[0]; const events = new EventSource('/live'); \
                 events.onopen = () => { window.hears = new Promise((heard) => \
                 events.addEventListener('scheduled', () => setTimeout(heard, 2500))); told(true); };";
    assert_eq!(browser.run_async(heard).await, true);
    schedule("the-third").await;
    browser.run_async("window.hears.then(arguments[0])").await;
    assert!(!browser.text().await.contains("the-third"));
    let typed = browser.run("return document.getElementById('to').value").await;
    assert_eq!(typed, "+1");
    browser.type_keys(Key::Backspace + Key::Backspace).await;
    browser.run("document.activeElement.blur()").await;
    browser.says("the-third").await;
    assert_eq!(browser.run("return window.loaded").await, 1);
    browser.end_well().await;
}

#[tokio::test]
async fn who_is_signed_in_and_follows_a_link_from_elsewhere_does_not_sign_in_again() {
    let server = Server::configured(&tokens(&[("operator", "\"read\"")]));
    let browser = Chromium::new(&server).await;
    browser.go("/").await;
    browser.type_keys("operator" + Key::Enter).await;
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
async fn who_looks_at_many_pages_does_not_wait_for_those_that_are_left() {
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
