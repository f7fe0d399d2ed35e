//! Changes of many tasks.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::browser::{Browser, Page, search};
use crate::server::Server;

async fn scheduled(server: &Server, count: usize) {
    let task = |at| json!({"kind": "k", "key": format!("key-{at}"), "after": format!("{}m", 10 + at)});
    let tasks: Value = (0..count).map(task).collect();
    assert_eq!(server.post("/v1/tasks", tasks).await.status, 200);
}

/// Asks how many would be changed: by the form of a list, with what an operator has chosen in it.
async fn check(browser: &Browser, list: &str, chosen: &[(&str, &str)]) -> Page {
    let mut fields = browser.get(list).await.form("/bulk/check");
    let chosen = chosen.iter();
    fields.extend(chosen.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    browser.get(&format!("/bulk/check?{}", search(&fields))).await
}

/// Does what was asked for, and says what came of it.
pub(super) async fn confirm(browser: &Browser, checked: &Page) -> Page {
    let fields = checked.form("/bulk");
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let done = browser.post("/bulk", &fields).await;
    browser.get(done.location()).await
}

async fn state(server: &Server, key: &str) -> Value {
    state_of(server, "k", key).await
}

async fn state_of(server: &Server, kind: &str, key: &str) -> Value {
    server.get(&format!("/v1/tasks/{kind}/{key}")).await.body["state"].clone()
}

#[tokio::test]
async fn those_that_are_chosen_are_changed_as_they_were_seen() {
    let server = Server::start();
    let browser = Browser::new(&server);
    scheduled(&server, 3).await;
    let list = browser.get("/tasks?kind=k").await;
    let positions: Vec<_> = list
        .text
        .split(r#"name="task" value=""#)
        .skip(1)
        .map(|rest| rest.split('"').next().unwrap())
        .collect();
    assert_eq!(positions.len(), 3);
    let chosen = [
        ("which", "chosen"),
        ("verb", "cancel"),
        ("task", positions[0]),
        ("task", positions[1]),
    ];
    let checked = check(&browser, "/tasks?kind=k", &chosen).await;
    checked.says("<h1>Cancel 2 tasks?</h1>");
    assert_eq!(
        state(&server, "key-0").await,
        "scheduled",
        "nothing was changed yet"
    );
    let moved = server.post("/v1/tasks/k/key-1/shift", json!({"by": "+1h"})).await;
    moved.is(200, "done");
    let told = confirm(&browser, &checked).await;
    told.says(r#"<dt class="count">1</dt><dd>cancelled"#);
    told.says(r#"<dt class="count">1</dt><dd>were changed by another caller"#);
    for (key, is) in [
        ("key-0", "cancelled"),
        ("key-1", "scheduled"),
        ("key-2", "scheduled"),
    ] {
        assert_eq!(state(&server, key).await, is, "{key}");
    }
}

#[tokio::test]
async fn all_that_match_are_counted_and_then_changed() {
    let server = Server::start();
    let browser = Browser::new(&server);
    scheduled(&server, 20).await;
    let before = server.get("/v1/tasks/k/key-1").await.body["due_at"].clone();
    let chosen = [("which", "all"), ("verb", "move"), ("to", "+1d")];
    let checked = check(&browser, "/tasks?kind=k&q=key-1&state=scheduled", &chosen).await;
    checked.says("<h1>Move 11 tasks, each by +1d?</h1>");
    checked.says("<dt>Key begins with</dt><dd>key-1</dd>");
    confirm(&browser, &checked)
        .await
        .says(r#"<dt class="count">11</dt><dd>moved"#);
    let after = server.get("/v1/tasks/k/key-1").await.body["due_at"].clone();
    assert_ne!(after, before);
    // Those that are due by the time at which it was asked.
    let chosen = [("which", "all"), ("verb", "run")];
    let checked = check(&browser, "/tasks?kind=k&due=1h", &chosen).await;
    checked.says("<h1>Run 9 tasks now?</h1>");
    // As if that was long ago: none was due within an hour of it.
    let mut fields = checked.form("/bulk");
    let asked = fields.iter_mut().find(|(name, _)| name == "asked").unwrap();
    asked.1 = "0".to_owned();
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let done = browser.post("/bulk", &fields).await;
    browser
        .get(done.location())
        .await
        .says(r#"<dt class="count">0</dt><dd>are due now"#);
}

#[tokio::test]
async fn a_kind_whose_name_ends_with_a_space_is_changed_and_paused_and_no_other() {
    let server = Server::start();
    let browser = Browser::new(&server);
    for kind in ["k", "k "] {
        let task = json!([{"kind": kind, "key": "1", "after": "1h"}]);
        assert_eq!(server.post("/v1/tasks", task).await.status, 200);
    }
    let state = async |kind: &str| state_of(&server, kind, "1").await;
    let chosen = [("which", "all"), ("verb", "cancel")];
    let checked = check(&browser, "/tasks?kind=k%20", &chosen).await;
    checked.says("<h1>Cancel 1 task?</h1>");
    confirm(&browser, &checked)
        .await
        .says(r#"<dt class="count">1</dt><dd>cancelled"#);
    assert_eq!(
        (state("k").await, state("k%20").await),
        (json!("scheduled"), json!("cancelled"))
    );
    browser
        .post("/kinds/pause", &[("kind", "k "), ("reason", " a move ")])
        .await;
    let kinds = server.get("/v1/kinds").await.body;
    assert!(kinds["kinds"][0]["paused"].is_null(), "{kinds}");
    assert_eq!(kinds["kinds"][1]["paused"]["reason"], "a move");
    let rest = browser.get("/kinds?after=k").await;
    rest.says("kind=k%20");
}

#[tokio::test]
async fn what_cannot_be_meant_is_refused() {
    let server = Server::start();
    let browser = Browser::new(&server);
    scheduled(&server, 1).await;
    for (search, said) in [
        ("verb=cancel&which=all", "choose a kind"),
        ("verb=cancel&which=chosen&kind=k", "no task is chosen"),
        (
            "verb=eat&which=all&kind=k",
            "allowed are cancel, run, redrive, dismiss and move",
        ),
        ("verb=move&which=all&kind=k&to=soon", "such as 15m"),
        ("verb=cancel&task=changed", "cursor"),
    ] {
        let refused = browser.get(&format!("/bulk/check?{search}")).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{search}");
        refused.says(said);
    }
    let none = browser.get("/bulk/check?verb=redrive&which=all&kind=k").await;
    none.says("No task matches");
    none.does_not_say("<button class=\"danger\"");
}

#[tokio::test]
async fn very_many_are_changed_behind_the_page_that_tells_of_it() {
    let server = Server::start();
    let browser = Browser::new(&server);
    scheduled(&server, 1_200).await;
    browser.get("/bulk").await.says("There are none.");
    let chosen = [("which", "all"), ("verb", "cancel")];
    let checked = check(&browser, "/tasks?kind=k", &chosen).await;
    checked.says("<h1>Cancel 1,200 tasks?</h1>");
    let fields = checked.form("/bulk");
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let begun = browser.post("/bulk", &fields).await;
    let path = begun.location().to_owned();
    let id = path.strip_prefix("/bulk/").unwrap();
    server
        .until(&format!("/v1/bulk/{id}"), |job| job["state"] == "done")
        .await;
    let page = browser.get(&path).await;
    page.says(r#"<dt class="count">1,200</dt><dd>cancelled"#);
    page.does_not_say("Stop it");
    browser.get("/bulk").await.says(&path);
    // It has ended, and stays as it has.
    let stopped = browser.post(&format!("{path}/stop"), &[]).await;
    assert_eq!(stopped.location(), path);
}
