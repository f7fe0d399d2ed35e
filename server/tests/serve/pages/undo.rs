//! Undoing a cancel.

use std::time::Duration;

use delayline::store::SqliteStore;
use delayline::{NewTask, Scheduler};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::browser::Browser;
use super::sign_in::{signed_in, tokens};
use crate::server::{ANY_PORT, Server};
use crate::test_clock::{standing, turned};

async fn scheduled(server: &Server) -> Value {
    let body = json!({"after": "1h", "payload": {"card": "4111"}, "headers": {"who": "me"}});
    let task = server.put("/v1/tasks/k/1", body).await;
    task.is(201, "new").clone()
}

async fn cancelled(browser: &Browser, id: &str) -> super::browser::Page {
    let done = browser.post(&format!("/tasks/{id}/cancel"), &[]).await;
    assert!(done.location().ends_with("?said=cancel.done"));
    browser.get(done.location()).await
}

/// A message that waits, as the gateway keeps one; gives its id.
async fn message(server: &Server) -> String {
    let store = SqliteStore::open(server.folder.path().join("delayline.db"));
    let scheduler = Scheduler::new(store.await.unwrap());
    let message = NewTask::new("message", &1).header("DELAYLINE_TOPIC", "orders");
    let scheduled = scheduler.schedule(message.after(Duration::from_secs(60))).await;
    let id = scheduled.unwrap().task().id.to_string();
    scheduler.close().await.unwrap();
    id
}

/// Those that can be chosen in a list, in its order.
fn choosable(list: &super::browser::Page) -> Vec<&str> {
    let tasks = list.text.split("name=\"task\" value=\"").skip(1);
    tasks.map(|rest| rest.split('"').next().unwrap()).collect()
}

#[tokio::test]
async fn a_cancel_says_what_it_does_and_is_undone_once() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let task = scheduled(&server).await;
    let id = task["id"].as_str().unwrap();
    let page = browser.get(&format!("/tasks/{id}")).await;
    page.says("Cancelled, it will not run at <time");
    page.says("That can be undone for ten seconds.");
    let page = cancelled(&browser, id).await;
    page.says("Cancelled: it will not run.");
    page.says(&format!("action=\"/tasks/{id}/undo\" data-until="));
    let undone = browser.post(&format!("/tasks/{id}/undo"), &[]).await;
    let page = browser.get(undone.location()).await;
    page.says("Undone: this is the task that stands for it");
    page.says(&format!("the cancel of {id} was undone"));
    let new = server.get("/v1/tasks/k/1").await.body;
    assert_ne!(new["id"], task["id"]);
    for what in ["due_at", "payload", "headers", "key"] {
        assert_eq!(new[what], task[what], "{what}");
    }
    let again = browser.post(&format!("/tasks/{id}/undo"), &[]).await;
    assert_eq!(
        again.location(),
        undone.location(),
        "a form that is sent twice makes one task"
    );
    // Another caller has the key by then.
    let page = cancelled(&browser, new["id"].as_str().unwrap()).await;
    page.says("/undo");
    scheduled(&server).await;
    let path = format!("/tasks/{}/undo", new["id"].as_str().unwrap());
    let refused = browser.post(&path, &[]).await;
    browser.get(refused.location()).await.says("Not undone");
    let listed = server.get("/v1/tasks?kind=k").await.body;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn what_cannot_be_undone_any_more_is_said_to_be_so() {
    let server = standing("");
    let browser = Browser::new(&server);
    let task = scheduled(&server).await;
    let id = task["id"].as_str().unwrap();
    cancelled(&browser, id).await.says("/undo");
    turned(&server, json!({"by": "11s"})).await;
    let page = browser.get(&format!("/tasks/{id}?said=cancel.done")).await;
    page.does_not_say("/undo");
    page.says("It cannot be undone any more; it can be run again as a new task.");
    let refused = browser.post(&format!("/tasks/{id}/undo"), &[]).await;
    browser.get(refused.location()).await.says("Not undone");
    assert_eq!(server.get("/v1/tasks/k/1").await.body["state"], "cancelled");
}

#[tokio::test]
async fn an_undo_whose_answer_was_lost_is_said_to_be_done_also_later() {
    let server = standing("");
    let browser = Browser::new(&server);
    let id = scheduled(&server).await["id"].as_str().unwrap().to_owned();
    cancelled(&browser, &id).await.says("/undo");
    let undo = format!("/tasks/{id}/undo");
    let undone = browser.post(&undo, &[]).await;
    turned(&server, json!({"by": "11s"})).await;
    let again = browser.post(&undo, &[]).await;
    assert_eq!(again.location(), undone.location());
}

#[tokio::test]
async fn an_undo_takes_the_right_to_schedule() {
    let server = Server::configured(&tokens(&[
        ("operator", "\"read\", \"change\""),
        ("service", "\"read\", \"change\", \"schedule\""),
    ]));
    let id = super::sign_in::scheduled_by(&server, "service").await;
    let operator = signed_in(&server, "operator").await;
    let page = operator.get(&format!("/tasks/{id}")).await;
    page.says("That cannot be undone by your token.");
    let page = cancelled(&operator, &id).await;
    page.does_not_say("/undo");
    let refused = operator.post(&format!("/tasks/{id}/undo"), &[]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn those_that_were_chosen_are_put_back_together() {
    let server = Server::start();
    let browser = Browser::new(&server);
    for key in ["1", "2", "3"] {
        let path = format!("/v1/tasks/k/{key}");
        server.put(&path, json!({"after": "1h"})).await.is(201, "new");
    }
    let list = browser.get("/tasks?kind=k").await;
    let chosen = choosable(&list);
    let fields = [("verb", "cancel"), ("task", chosen[0]), ("task", chosen[1])];
    let done = browser.post("/bulk", &fields).await;
    let page = browser.get(done.location()).await;
    page.says(r#"<dt class="count">2</dt><dd>cancelled"#);
    let fields = page.form("/bulk/undo");
    let fields: Vec<_> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect();
    let done = browser.post("/bulk/undo", &fields).await;
    let page = browser.get(done.location()).await;
    page.says(r#"<dt class="count">2</dt><dd>put back"#);
    page.does_not_say("/bulk/undo");
    let listed = server.get("/v1/tasks?kind=k").await.body;
    assert_eq!(listed["tasks"].as_array().unwrap().len(), 3);
    // All that match are not known one by one.
    let fields = [("verb", "cancel"), ("which", "all"), ("kind", "k")];
    let done = browser.post("/bulk", &fields).await;
    let page = browser.get(done.location()).await;
    page.says(r#"<dt class="count">3</dt><dd>cancelled"#);
    page.does_not_say("/bulk/undo");
}

#[tokio::test]
async fn a_message_of_the_gateway_is_not_offered_to_be_put_back_and_keeps_no_other_from_it() {
    let server = Server::start();
    let browser = Browser::new(&server);
    let id = message(&server).await;
    browser
        .get(&format!("/tasks/{id}"))
        .await
        .says("That cannot be undone.");
    let page = cancelled(&browser, &id).await;
    page.does_not_say("/undo");
    page.does_not_say("/rerun");

    let (first, task) = (message(&server).await, scheduled(&server).await);
    let id = task["id"].as_str().unwrap();
    let list = browser.get("/tasks").await;
    let chosen = choosable(&list);
    let fields = [("verb", "cancel"), ("task", chosen[0]), ("task", chosen[1])];
    let done = browser.post("/bulk", &fields).await;
    let page = browser.get(done.location()).await;
    page.says(r#"<dt class="count">2</dt><dd>cancelled"#);
    let offered: Vec<_> = page
        .form("/bulk/undo")
        .into_iter()
        .filter(|(name, _)| name == "task")
        .collect();
    assert_eq!(offered, [("task".to_owned(), id.to_owned())]);
    // As an earlier page has them.
    let done = browser
        .post("/bulk/undo", &[("task", first.as_str()), ("task", id)])
        .await;
    let page = browser.get(done.location()).await;
    page.says(r#"<dt class="count">1</dt><dd>put back"#);
    page.says(r#"<dt class="count">1</dt><dd>not put back"#);
    assert_eq!(server.get("/v1/tasks/k/1").await.body["state"], "scheduled");
}

#[cfg(feature = "rocketmq")]
#[tokio::test]
async fn where_there_is_a_gateway_it_is_said_before_that_its_messages_cannot_be_put_back() {
    // Nothing answers there.
    let gateway = "[rocketmq]\nnameserver = \"127.0.0.1:1\"\n[gateway]\n";
    for (gateway, said) in [
        ("", "for ten seconds.<"),
        (gateway, "but for messages of the gateway.<"),
    ] {
        let server = Server::configured(&format!("{ANY_PORT}{gateway}"));
        let browser = Browser::new(&server);
        scheduled(&server).await;
        let list = browser.get("/tasks?kind=k").await;
        let task = choosable(&list)[0];
        let page = browser.get(&format!("/bulk/check?verb=cancel&task={task}")).await;
        page.says(said);
    }
}
