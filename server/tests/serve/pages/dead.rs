//! Dead tasks, by why.

use serde_json::json;

use super::browser::{Browser, search};
use super::bulk::confirm;
use crate::server::Server;

/// Gives up tasks of a kind for a reason.
pub(super) async fn dead(server: &Server, kind: &str, reason: &str, count: usize) {
    for _ in 0..count {
        let new = json!({"kind": kind, "after": "0s"});
        server.post("/v1/tasks", new).await.is(201, "new");
    }
    let claims = json!({"kinds": [kind], "max": count});
    let claims = server.post("/v1/claims", claims).await.body;
    let claims = claims["claims"].as_array().unwrap();
    assert_eq!(claims.len(), count);
    for claim in claims {
        let path = format!("/v1/claims/{}/discard", claim["claim"].as_str().unwrap());
        assert_eq!(server.post(&path, json!({"reason": reason})).await.status, 200);
    }
}

#[tokio::test]
async fn the_dead_of_one_error_are_redriven_or_dismissed_and_no_others() {
    let server = Server::start();
    let browser = Browser::new(&server);
    browser.get("/dead").await.says("No task is dead.");
    dead(&server, "mail", "502 from <mail>", 3).await;
    dead(&server, "mail", "no such address", 1).await;
    dead(&server, "other", "502 from <mail>", 2).await;
    let page = browser.get("/dead").await;
    let rows: Vec<_> = page.text.split("<tr data-key=").skip(1).collect();
    assert_eq!(rows.len(), 3, "{rows:?}");
    assert!(rows[0].contains("502 from &#60;mail&#62;"), "most come first");
    assert!(rows[0].contains(r#"class="number">3</td>"#));
    assert!(rows[1].contains(r#"class="number">2</td>"#));
    assert!(rows[2].contains("no such address"));
    browser
        .get("/dead?kind=other")
        .await
        .does_not_say("no such address");

    // These are all with that error, so they are redriven at once: their number is on the button.
    page.says("Redrive 3</button>");
    let fields = page.form("/bulk");
    let mut fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    fields.push(("verb", "redrive"));
    let done = browser.post("/bulk", &fields).await;
    browser
        .get(done.location())
        .await
        .says(r#"<dt class="count">3</dt><dd>redriven"#);
    for (search, count) in [
        ("kind=mail&state=dead", 1),
        ("kind=mail", 3),
        ("kind=other&state=dead", 2),
    ] {
        let found = server.get(&format!("/v1/tasks?{search}")).await.body;
        assert_eq!(found["tasks"].as_array().unwrap().len(), count, "{search}");
    }

    let page = browser.get("/dead").await;
    page.says(r#"<button name="verb" value="dismiss""#);
    let mut fields = page.form("/bulk/check");
    fields.push(("verb".to_owned(), "dismiss".to_owned()));
    let checked = browser.get(&format!("/bulk/check?{}", search(&fields))).await;
    checked.says("<h1>Dismiss 2 tasks?</h1>");
    let told = confirm(&browser, &checked).await;
    told.says(r#"<dt class="count">2</dt><dd>dismissed"#);
    let ended = server.get("/v1/tasks?kind=other&state=cancelled").await.body;
    assert_eq!(ended["tasks"].as_array().unwrap().len(), 2);
    let list = browser.get("/tasks?kind=mail&state=dead").await;
    list.says(r#"<button name="verb" value="dismiss""#);
    let list = browser.get("/tasks?kind=mail").await;
    list.does_not_say(r#"value="dismiss""#);
}

#[tokio::test]
async fn an_error_that_is_within_another_one_is_counted_before_it_is_redriven() {
    let server = Server::start();
    let browser = Browser::new(&server);
    dead(&server, "mail", "502", 1).await;
    dead(&server, "mail", "502 from mail", 2).await;
    let page = browser.get("/dead").await;
    page.says("Redrive 2</button>");
    page.does_not_say("Redrive 1</button>");
    page.says("Redrive…</button>");
}

#[tokio::test]
async fn an_error_of_several_lines_is_changed_as_browsers_send_it() {
    let server = Server::start();
    let browser = Browser::new(&server);
    // As Python says them, and as Windows does.
    dead(&server, "python", "Traceback:\n\tline 7\nno paper", 2).await;
    dead(&server, "windows", "no paper\r\nline 7", 1).await;
    for (kind, count) in [("python", "2"), ("windows", "1")] {
        let page = browser.get(&format!("/dead?kind={kind}")).await;
        page.says(&format!("Redrive {count}</button>"));
        let fields = page.form("/bulk");
        let sent: Vec<_> = fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.replace("\r\n", "\n").replace('\n', "\r\n")))
            .collect();
        let mut sent: Vec<_> = sent.iter().map(|(name, value)| (*name, value.as_str())).collect();
        sent.push(("verb", "redrive"));
        let done = browser.post("/bulk", &sent).await;
        let told = browser.get(done.location()).await;
        told.says(&format!(r#"<dt class="count">{count}</dt><dd>redriven"#));
    }
}

#[tokio::test]
async fn an_error_that_may_be_within_the_rest_of_another_one_is_counted_first() {
    let server = Server::start();
    let browser = Browser::new(&server);
    dead(&server, "mail", "no paper", 1).await;
    dead(&server, "mail", "the printer says:\r\nno paper", 2).await;
    let page = browser.get("/dead").await;
    page.does_not_say("Redrive 1</button>");
    page.says("Redrive 2</button>");
}

#[tokio::test]
async fn the_menu_of_every_page_tells_how_many_are_dead() {
    let server = Server::start();
    let browser = Browser::new(&server);
    browser.get("/kinds").await.does_not_say("class=\"sign");
    dead(&server, "mail", "502", 2).await;
    dead(&server, "other", "502", 1).await;
    for path in ["/", "/tasks", "/brokers"] {
        browser
            .get(path)
            .await
            .says("<b class=\"sign bad\">3<span class=\"unseen\"> dead tasks</span></b>");
    }
}
