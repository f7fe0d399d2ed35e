//! Which kinds a token sees.

use reqwest::{Method, StatusCode};
use serde_json::json;

use super::browser::Browser;
use crate::rights::{ask, of_two_kinds};

#[tokio::test]
async fn a_visitor_sees_the_kinds_that_its_token_is_for() {
    let (server, tasks) = of_two_kinds().await;
    let browser = Browser::new(&server);
    let came = browser.post("/sign-in", &[("token", "orders")]).await;
    assert_eq!(came.status, StatusCode::SEE_OTHER);
    let id = |at: usize| tasks[at]["id"].as_str().unwrap();
    for path in [
        "/",
        "/tasks",
        "/kinds",
        "/dead",
        "/workers",
        "/bulk",
        "/brokers",
        "/tasks?q=1",
    ] {
        let page = browser.get(path).await;
        assert_eq!(page.status, StatusCode::OK, "{path}");
        page.does_not_say("mail");
        page.does_not_say(id(1));
    }
    browser.get("/tasks").await.says("order.a");
    browser.get("/").await.says("your token is for some");
    let brokers = browser.get("/brokers").await;
    brokers.says("your token is for some");
    brokers.does_not_say("Wake-ups sent");
    brokers.does_not_say("<dt>");
    for (path, status) in [
        ("/tasks?kind=mail".to_owned(), StatusCode::FORBIDDEN),
        ("/dead?kind=mail".to_owned(), StatusCode::FORBIDDEN),
        (
            "/bulk/check?verb=cancel&which=all&kind=mail".to_owned(),
            StatusCode::FORBIDDEN,
        ),
        (format!("/tasks/{}", id(1)), StatusCode::NOT_FOUND),
        (format!("/tasks/{}?payload=shown", id(1)), StatusCode::NOT_FOUND),
    ] {
        assert_eq!(browser.get(&path).await.status, status, "{path}");
    }
    let all = Browser::new(&server);
    all.post("/sign-in", &[("token", "all")]).await;
    let brokers = all.get("/brokers").await;
    brokers.says("Wake-ups sent");
    brokers.says("<dt>started when a worker had room again</dt>");
    brokers.does_not_say("your token is for some");
    for (path, fields, status) in [
        (format!("/tasks/{}/cancel", id(1)), &[][..], StatusCode::NOT_FOUND),
        (
            "/kinds/pause".to_owned(),
            &[("kind", "mail")],
            StatusCode::FORBIDDEN,
        ),
        (
            "/kinds/resume".to_owned(),
            &[("kind", "mail")],
            StatusCode::FORBIDDEN,
        ),
        (
            "/bulk".to_owned(),
            &[("verb", "cancel"), ("which", "all"), ("kind", "mail")],
            StatusCode::FORBIDDEN,
        ),
    ] {
        assert_eq!(
            browser.post(&path, fields).await.status,
            status,
            "{path} {fields:?}"
        );
    }
    let still = ask(&server, "all", Method::GET, "/v1/tasks/mail/1", json!({})).await;
    assert_eq!(
        (&still.body["state"], &still.body["version"]),
        (&json!("scheduled"), &json!(1))
    );
    let own = browser.post(&format!("/tasks/{}/cancel", id(0)), &[]).await;
    assert_eq!(own.status, StatusCode::SEE_OTHER);
}

#[tokio::test]
async fn a_chosen_task_of_a_kind_of_others_is_not_there() {
    let (server, _) = of_two_kinds().await;
    let (all, browser) = (Browser::new(&server), Browser::new(&server));
    all.post("/sign-in", &[("token", "all")]).await;
    browser.post("/sign-in", &[("token", "orders")]).await;
    let mut chosen = vec![("verb", "cancel"), ("which", "chosen")];
    let mut lists = Vec::new();
    for kind in ["mail", "order.a"] {
        lists.push(all.get(&format!("/tasks?kind={kind}")).await);
    }
    for list in &lists {
        let task = list.text.split_once("name=\"task\" value=\"").unwrap().1;
        chosen.push(("task", task.split_once('"').unwrap().0));
    }
    let done = browser.post("/bulk", &chosen).await;
    assert_eq!(done.status, StatusCode::SEE_OTHER, "{done:?}");
    assert!(done.location().contains("done=1") && done.location().contains("not_found=1"));
    browser.get(done.location()).await.does_not_say("mail");
    let state = async |kind: &str| {
        let path = format!("/v1/tasks/{kind}/1");
        ask(&server, "all", Method::GET, &path, json!({})).await.body["state"].clone()
    };
    assert_eq!(
        (state("mail").await, state("order.a").await),
        (json!("scheduled"), json!("cancelled"))
    );
}
