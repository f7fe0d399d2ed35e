//! Tasks that are there.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::server::Server;

/// The keys of all tasks of a list, and how many pages it has.
async fn listed(server: &Server, search: &str) -> (Vec<String>, usize) {
    let mut path = format!("/v1/tasks{search}");
    let (mut keys, mut pages) = (Vec::new(), 0);
    loop {
        let page = server.get(&path).await;
        assert_eq!(page.status, 200, "{page:?}");
        let tasks = page.body["tasks"].as_array().unwrap().iter();
        keys.extend(tasks.map(|task| task["key"].as_str().unwrap_or("-").to_owned()));
        pages += 1;
        let Some(cursor) = page.body["cursor"].as_str() else {
            return (keys, pages);
        };
        path = format!("/v1/tasks{search}&cursor={cursor}");
    }
}

/// The names of the fields of an object.
fn fields(object: &Value) -> BTreeSet<&String> {
    object.as_object().unwrap().keys().collect()
}

#[tokio::test]
async fn a_task_has_the_fields_that_the_documentation_shows() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/http.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("## What is answered").unwrap();
    let (_, shown) = section.split_once("```json").unwrap();
    let shown: Value = serde_json::from_str(shown.split_once("```").unwrap().0).unwrap();

    let server = Server::start();
    let task = json!({"after": "0s", "payload": {"order": 42}, "headers": {"shop": "7"}, "max_attempts": 5});
    server.put("/v1/tasks/k/1", task.clone()).await.is(201, "new");
    let wanted = json!({"kinds": ["k"], "wait": "30s"});
    let claimed = server.post("/v1/claims", wanted).await.body;
    let claim = claimed["claims"][0]["claim"].as_str().unwrap();
    let body = json!({"after": "1h", "reason": "answered 503"});
    let retried = server.post(&format!("/v1/claims/{claim}/retry"), body).await;
    retried.is(200, "done");
    let answer = server.put("/v1/tasks/k/1", task).await.body;
    assert_eq!(fields(&answer), fields(&shown));
    assert_eq!(fields(&answer["task"]), fields(&shown["task"]));
    for field in fields(&answer["task"]) {
        let is_plain = ["id", "kind"].contains(&field.as_str());
        let is_explained = section.contains(&format!("`{field}`"));
        assert!(is_plain || is_explained, "{field}");
    }
}

/// Of two kinds in turn.
fn kind(number: u32) -> &'static str {
    ["a", "b"][number as usize % 2]
}

/// Schedules tasks, all of which are new.
async fn schedule(server: &Server, tasks: impl Iterator<Item = Value>) {
    let tasks: Vec<_> = tasks.collect();
    for batch in tasks.chunks(1_000) {
        let answers = server.post("/v1/tasks", json!(batch)).await.body;
        let answers = answers.as_array().unwrap();
        assert!(answers.iter().all(|each| each["answer"] == "new"), "{answers:?}");
    }
}

#[tokio::test]
async fn a_task_is_found_by_its_key_and_by_its_id() {
    let server = Server::start();
    let new = server.put("/v1/tasks/k/1", json!({"after": "1h"})).await;
    let task = new.is(201, "new");
    let by_key = server.get("/v1/tasks/k/1").await;
    assert_eq!(
        (by_key.status.as_u16(), by_key.etag.as_deref(), &by_key.body),
        (200, Some("\"1\""), task)
    );
    let by_id = server
        .get(&format!("/v1/tasks/id/{}", task["id"].as_str().unwrap()))
        .await;
    assert_eq!(&by_id.body, task);
    server.get("/v1/tasks/k/2").await.refuses(404, "no such task");
    server
        .get("/v1/tasks/id/01a206e5-bc4a-79c8-ab58-4c5bb7cf652e")
        .await
        .refuses(404, "no such task");
    server.get("/v1/tasks/id/7").await.refuses(400, "task id");
}

#[tokio::test]
async fn a_list_goes_on_from_page_to_page() {
    let server = Server::start();
    for key in 0..7 {
        let body = json!({"at": format!("2099-01-0{}T00:00:00Z", 7 - key)});
        server
            .put(&format!("/v1/tasks/k/{key}"), body)
            .await
            .is(201, "new");
    }
    server
        .put("/v1/tasks/other/1", json!({"after": "1h"}))
        .await
        .is(201, "new");
    let (keys, pages) = listed(&server, "?kind=k&limit=3").await;
    assert_eq!((keys.concat().as_str(), pages), ("6543210", 3));
    let days = "/v1/tasks?kind=k&due_after=2099-01-03T00:00:00Z&due_before=2099-01-05T00:00:00Z";
    let within = server.get(days).await;
    let keys = within.body["tasks"].as_array().unwrap().iter();
    assert_eq!(keys.map(|task| &task["key"]).collect::<Vec<_>>(), ["4", "3"]);
    let cancelled = server.get("/v1/tasks?kind=k&state=cancelled").await;
    assert_eq!(cancelled.body, json!({"tasks": []}));
}

#[tokio::test]
async fn a_list_that_cannot_be_made_is_refused_by_name() {
    let server = Server::start();
    for (search, said) in [
        ("?kind=", "kind is"),
        ("?limit=501", "allowed are 1 to 500"),
        ("?cursor=MTIz", "cursor is"),
        ("?key=1", "key"),
        ("?kind=k&limit=0", "allowed are 1 to 500"),
        ("?kind=k&limit=501", "allowed are 1 to 500"),
        ("?kind=k&state=gone", "gone"),
        ("?kind=k&cursor=x", "cursor is"),
        ("?kind=k&order=due", "order"),
        ("?kind=k&due_before=soon", "soon"),
    ] {
        server.get(&format!("/v1/tasks{search}")).await.refuses(400, said);
    }
}

#[tokio::test]
async fn a_list_without_a_kind_has_all_kinds_in_one_order() {
    let server = Server::start();
    // A day after the other one of `a` and one of `b`; then, at one moment, ten of `c` and ten of `d`.
    let task = |number: usize| {
        let (kinds, day) = match number {
            20.. => (["c", "d"], 21),
            number => (["a", "b"], 1 + number),
        };
        json!({"kind": kinds[number % 2], "key": format!("{number:02}"), "at": format!("2099-01-{day:02}T00:00:00Z")})
    };
    schedule(&server, (0..40).map(task)).await;
    let (keys, pages) = listed(&server, "?limit=500").await;
    let mut sorted = keys.clone();
    // Of one moment ids decide, which are in no order that is known.
    sorted[20..].sort();
    assert_eq!(
        sorted,
        (0..40).map(|number| format!("{number:02}")).collect::<Vec<_>>()
    );
    assert_eq!(pages, 1);
    for (limit, pages) in [(1, 40), (3, 14), (20, 2), (39, 2), (40, 1)] {
        let search = format!("?limit={limit}");
        assert_eq!(listed(&server, &search).await, (keys.clone(), pages), "{limit}");
    }
    let days = "?limit=2&due_after=2099-01-03T00:00:00Z&due_before=2099-01-06T00:00:00Z";
    assert_eq!(listed(&server, days).await.0, ["02", "03", "04"]);
    assert_eq!(listed(&server, "?kind=b&limit=4").await.1, 3);
    for path in ["a/04", "b/01", "c/20"] {
        server
            .post(&format!("/v1/tasks/{path}/cancel"), json!({}))
            .await
            .is(200, "done");
    }
    let cancelled = listed(&server, "?state=cancelled&limit=2").await;
    assert_eq!(cancelled, (vec!["01".into(), "04".into(), "20".into()], 2));
    assert_eq!(listed(&server, "?state=dead&limit=2").await.0, [""; 0]);
}

#[tokio::test]
async fn of_more_than_a_hundred_kinds_one_must_be_named() {
    let server = Server::start();
    let task = |number: u32| json!({"kind": format!("k{number}"), "key": format!("{number}"), "after": "1h"});
    schedule(&server, (0..101).map(task)).await;
    let refused = server.get("/v1/tasks").await;
    refused.refuses(400, "name a kind");
    assert_eq!(refused.body["field"], "kind");
    assert_eq!(listed(&server, "?kind=k7").await.0, ["7"]);
    server
        .post("/v1/tasks/k7/7/cancel", json!({}))
        .await
        .is(200, "done");
    let (keys, pages) = listed(&server, "?limit=7").await;
    assert_eq!((keys.len(), pages), (100, 15));
    assert_eq!(listed(&server, "?state=cancelled&limit=7").await.0, ["7"]);
}

#[tokio::test]
async fn a_list_is_of_keys_that_begin_so() {
    let server = Server::start();
    let task = |number: u32| {
        let key = format!(
            "{}-{number}",
            if number.is_multiple_of(3) { "toy" } else { "book" }
        );
        json!({"kind": kind(number), "key": key, "at": format!("2099-01-01T00:{number:02}:00Z")})
    };
    schedule(&server, (0..20).map(task)).await;
    schedule(&server, std::iter::once(json!({"kind": "a", "after": "1h"}))).await;
    let toys = ["toy-0", "toy-3", "toy-6", "toy-9", "toy-12", "toy-15", "toy-18"];
    for limit in [1, 2, 7, 100] {
        assert_eq!(
            listed(&server, &format!("?key_prefix=toy-&limit={limit}"))
                .await
                .0,
            toys
        );
    }
    assert_eq!(
        listed(&server, "?key_prefix=toy-&kind=b&limit=2").await.0,
        ["toy-3", "toy-9", "toy-15"]
    );
    let late = "?key_prefix=toy-1&due_before=2099-01-01T00:18:00Z";
    assert_eq!(listed(&server, late).await.0, ["toy-12", "toy-15"]);
    assert_eq!(listed(&server, "?key_prefix=TOY").await, (Vec::new(), 1));
    assert_eq!(listed(&server, "?key_prefix=toy-&state=done").await.0, [""; 0]);
    // Every key begins so; a task without one has none that does.
    assert_eq!(listed(&server, "?key_prefix=&limit=500").await.0.len(), 20);
}

#[tokio::test]
async fn no_more_than_ten_thousand_tasks_are_looked_at_for_a_page() {
    let server = Server::start();
    let task = |number: u32| {
        let key = match number {
            10_500 => "last".to_owned(),
            number => format!("{number}"),
        };
        json!({"kind": kind(number), "key": key, "at": format!("2099-01-01T00:00:00.{:03}Z", number / 20)})
    };
    schedule(&server, (0..=10_500).map(task)).await;
    let first = server.get("/v1/tasks?key_prefix=last").await.body;
    assert_eq!(first["tasks"], json!([]));
    assert!(first["cursor"].is_string());
    assert_eq!(
        listed(&server, "?key_prefix=last").await,
        (vec!["last".to_owned()], 2)
    );
    assert_eq!(listed(&server, "?key_prefix=last&kind=a").await.1, 1);
}
