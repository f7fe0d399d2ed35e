//! Finding tasks.

use reqwest::StatusCode;
use serde_json::json;

use super::browser::Browser;
use crate::server::Server;

#[tokio::test]
async fn a_task_is_found_by_its_key_its_id_its_kind_and_how_its_key_begins() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let mut ids = Vec::new();
    for (kind, key) in [
        ("order.cancel", "order-1"),
        ("order.cancel", "order-12"),
        ("order.remind", "order-1"),
        ("other", "x"),
    ] {
        let path = format!("/v1/tasks/{kind}/{key}");
        let task = server
            .put(&path, json!({"after": "1h"}))
            .await
            .is(201, "new")
            .clone();
        ids.push(task["id"].as_str().unwrap().to_owned());
    }
    server
        .post("/v1/tasks/order.remind/order-1/cancel", json!({}))
        .await
        .is(200, "done");
    let link = |at: usize| format!(r#"<a href="/tasks/{}">"#, ids[at]);

    let page = browser.get("/tasks?q=order-1").await;
    let (exact, list) = page.text.split_once(r#"<h2 id="list">"#).unwrap();
    assert!(
        exact.contains(&link(0)) && exact.contains(&link(2)),
        "of any state"
    );
    assert!(!exact.contains(&link(1)));
    assert!(list.contains(&link(1)), "{list}");
    assert!(
        !list.contains(&link(0)) && !list.contains(&link(2)),
        "once is enough"
    );
    assert!(!list.contains(&link(3)));
    // The beginning of a key, in whatever state its task is.
    let page = browser.get("/tasks?q=order-").await;
    for at in 0..3 {
        page.says(&link(at));
    }
    page.says(r#"<span class="state cancelled">cancelled</span>"#);
    let page = browser.get("/tasks?q=order-&state=cancelled").await;
    page.says(&link(2));
    page.does_not_say(&link(0));

    let by_id = browser.get(&format!("/tasks?q=+{}+", ids[3])).await;
    assert_eq!(by_id.location(), format!("/tasks/{}", ids[3]));
    let by_kind = browser.get("/tasks?q=other").await;
    assert_eq!(by_kind.location(), "/tasks?kind=other");
    let page = browser.get("/tasks?kind=other&state=&due=&q=").await;
    assert!(page.text.contains(&link(3)) && !page.text.contains(&link(0)));
    browser.get("/tasks?kind=other&due=now").await.says("None.");
    browser.get("/tasks?kind=other&due=24h").await.says(&link(3));
    let page = browser.get("/tasks?state=cancelled").await;
    assert!(page.text.contains(&link(2)) && !page.text.contains(&link(0)));
    let wrong = browser.get("/tasks?state=lost").await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    wrong.says("allowed are scheduled, running, done, dead and cancelled");
}

#[tokio::test]
async fn a_list_goes_on_from_page_to_page() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let tasks: Vec<_> = (0..60)
        .map(|at| json!({"kind": "k", "key": format!("key-{at:02}"), "after": format!("{}m", at + 1)}))
        .collect();
    let answers = server.post("/v1/tasks", json!(tasks)).await;
    assert_eq!(answers.status, 200);
    let first = browser.get("/tasks?kind=k&q=key-&state=scheduled").await;
    let next = first.attributes("href").find(|place| place.contains("cursor="));
    let next = next.unwrap().replace("&#38;", "&").replace("&amp;", "&");
    first.says("key-49");
    first.does_not_say("key-50");
    let second = browser.get(&next).await;
    second.does_not_say("key-49");
    second.says("key-50");
    second.says("key-59");
    assert!(!second.text.contains("cursor="), "it is the last one");
    let changed = browser.get("/tasks?cursor=changed").await;
    assert_eq!(changed.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn what_was_wrongly_filled_in_stays_with_what_was_chosen_and_says_what_is_wrong() {
    let server = Server::start();
    let browser = Browser::new(&server);
    for key in ["1", "2"] {
        let path = format!("/v1/tasks/k/{key}");
        server.put(&path, json!({"after": "1h"})).await.is(201, "new");
    }
    let list = browser.get("/tasks?kind=k").await;
    let chosen = list.text.split_once("name=\"task\" value=\"").unwrap().1;
    let chosen = chosen.split_once('"').unwrap().0;
    let path = format!("/bulk/check?kind=k&which=chosen&task={chosen}&verb=move&to=tomorrow");
    let wrong = browser.get(&path).await;
    assert_eq!(wrong.status, StatusCode::BAD_REQUEST);
    wrong.says("value=\"tomorrow\"");
    wrong.says(&format!("value=\"{chosen}\" checked"));
    wrong.says("<p class=\"wrong\" id=\"to-wrong\">");
    // On the page on which it was chosen.
    let cursor = list.form("/bulk/check").iter().any(|(name, _)| name == "cursor");
    assert!(!cursor, "it is the first");
    let later = browser.get(&format!("/tasks?kind=k&cursor={chosen}")).await;
    assert!(
        later
            .form("/bulk/check")
            .contains(&("cursor".to_owned(), chosen.to_owned()))
    );
    let none = browser.get("/bulk/check?kind=k&which=chosen&verb=cancel").await;
    none.says("<p class=\"wrong\" id=\"which-wrong\">no task is chosen");
}
