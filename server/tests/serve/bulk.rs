//! What is done with all tasks that match.

mod behind;

use serde_json::{Value, json};

use crate::server::{ANY_PORT, Server};

/// Tasks of a kind, a day after the other from 2099 on, with keys `a0` to `a4` and `b5` to `b9`.
async fn ten() -> Server {
    let server = Server::start();
    for day in 0..10 {
        let key = format!("{}{day}", if day < 5 { "a" } else { "b" });
        let body = json!({"at": format!("2099-01-{:02}T00:00:00Z", day + 1)});
        server
            .put(&format!("/v1/tasks/k/{key}"), body)
            .await
            .is(201, "new");
    }
    server
}

/// Schedules so many tasks of a kind, for 2099.
pub(crate) async fn schedule_many(server: &Server, kind: &str, count: usize) {
    let tasks: Vec<_> = (0..count)
        .map(|number| json!({"kind": kind, "key": number.to_string(), "at": "2099-01-01T00:00:00Z"}))
        .collect();
    for batch in tasks.chunks(500) {
        let scheduled = server.post("/v1/tasks", json!(batch)).await;
        assert_eq!(scheduled.status, 200, "{scheduled:?}");
        for each in scheduled.body.as_array().unwrap() {
            assert_eq!(each["answer"], "new", "{each}");
        }
    }
}

fn came(matched: u32, more: bool, done: u32) -> Value {
    let answers =
        json!({"done": done, "too_late": 0, "finished": 0, "conflict": 0, "not_found": 0, "failed": 0});
    json!({"matched": matched, "more": more, "answers": answers})
}

async fn keys(server: &Server, state: &str) -> String {
    let list = server.get(&format!("/v1/tasks?kind=k&state={state}")).await;
    let tasks = list.body["tasks"].as_array().unwrap().iter();
    tasks
        .map(|task| task["key"].as_str().unwrap())
        .collect::<Vec<_>>()
        .join(" ")
}

#[tokio::test]
async fn all_that_match_are_cancelled_in_parts() {
    let server = ten().await;
    let cancel = |filter: Value, limit: u32, dry_run: bool| {
        let body = json!({"filter": filter, "limit": limit, "dry_run": dry_run});
        server.post("/v1/tasks:cancel", body)
    };
    let b = json!({"kind": "k", "key_prefix": "b"});
    let dry = cancel(b.clone(), 3, true).await;
    assert_eq!(
        (dry.status.as_u16(), dry.body),
        (200, json!({"matched": 3, "more": true}))
    );
    assert_eq!(keys(&server, "cancelled").await, "");
    assert_eq!(cancel(b.clone(), 3, false).await.body, came(3, true, 3));
    assert_eq!(cancel(b, 3, false).await.body, came(2, false, 2));
    let days =
        json!({"kind": "k", "due_after": "2099-01-02T00:00:00Z", "due_before": "2099-01-04T00:00:00Z"});
    assert_eq!(cancel(days, 10, false).await.body, came(2, false, 2));
    assert_eq!(keys(&server, "scheduled").await, "a0 a3 a4");
}

/// A row that cannot be read, as one that another transaction holds for long, is left out, and told.
#[tokio::test]
async fn one_that_fails_keeps_no_other_from_being_changed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let server = Server::configured(&format!("{ANY_PORT}[store]\nurl = \"{}\"", file.display()));
    let rows = sqlx::SqlitePool::connect(file.to_str().unwrap()).await.unwrap();
    for (kind, count) in [("few", 150), ("many", 1_500)] {
        schedule_many(&server, kind, count).await;
        let spoil = format!(
            "UPDATE delayline_tasks SET headers = 'x' WHERE id = (SELECT id FROM delayline_tasks WHERE kind = '{kind}' LIMIT 1)"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(spoil))
            .execute(&rows)
            .await
            .unwrap();
    }
    let cancel = async |kind: &str| {
        let body = json!({"filter": {"kind": kind}});
        server.post("/v1/tasks:cancel", body).await.body
    };
    let few = cancel("few").await;
    assert_eq!(
        (
            &few["matched"],
            &few["answers"]["done"],
            &few["answers"]["failed"]
        ),
        (&json!(150), &json!(149), &json!(1))
    );
    let job = format!("/v1/bulk/{}", cancel("many").await["id"].as_str().unwrap());
    let many = server.until(&job, |job| job["state"] != "running").await;
    assert_eq!(
        (&many["state"], &many["changed"], &many["answers"]["failed"]),
        (&json!("failed"), &json!(1_499), &json!(1))
    );
    let error = many["error"].as_str().unwrap();
    assert!(error.starts_with("1 could not be changed"), "{error}");
}

#[tokio::test]
async fn all_that_match_are_moved_once() {
    let server = ten().await;
    let body = json!({"filter": {"kind": "k"}, "by": "+1d"});
    let shifted = server.post("/v1/tasks:shift", body).await;
    assert_eq!(shifted.body, came(10, false, 10));
    let first = server.get("/v1/tasks/k/a0").await;
    assert_eq!(first.body["due_at"], "2099-01-02T00:00:00Z");
    let last = server.get("/v1/tasks/k/b9").await;
    assert_eq!(last.body["due_at"], "2099-01-11T00:00:00Z");
    // What is moved would match again, so all must fit.
    let body = json!({"filter": {"kind": "k"}, "limit": 9, "at": "2098-01-01T00:00:00Z"});
    server
        .post("/v1/tasks:reschedule", body.clone())
        .await
        .refuses(400, "more tasks match");
    let first = server.get("/v1/tasks/k/a0").await;
    assert_eq!(first.body["version"], 2);
    let body = json!({"filter": {"kind": "k", "key_prefix": "a"}, "at": "2098-01-01T00:00:00Z"});
    let moved = server.post("/v1/tasks:reschedule", body).await;
    assert_eq!(moved.body, came(5, false, 5));
    let body = json!({"filter": {"kind": "k", "due_before": "2099-01-01T00:00:00Z"}});
    assert_eq!(server.post("/v1/tasks:run", body).await.body, came(5, false, 5));
}

/// Two dead tasks, with keys `1` and `2` and errors that end so.
async fn two_dead() -> Server {
    let server = Server::configured(&format!("{ANY_PORT}[kinds.k]\ndeliver = \"pull\"\n"));
    for key in ["1", "2"] {
        server
            .put(
                &format!("/v1/tasks/k/{key}"),
                json!({"after": "0s", "payload": key}),
            )
            .await
            .is(201, "new");
    }
    let mut dead = 0;
    while dead < 2 {
        let claims = server
            .post("/v1/claims", json!({"kinds": ["k"], "wait": "20s"}))
            .await;
        for claim in claims.body["claims"].as_array().unwrap() {
            let path = format!("/v1/claims/{}/discard", claim["claim"].as_str().unwrap());
            let reason = format!("error {}", claim["task"]["key"].as_str().unwrap());
            assert_eq!(server.post(&path, json!({"reason": reason})).await.status, 200);
            dead += 1;
        }
    }
    server
}

#[tokio::test]
async fn the_dead_of_one_error_are_redriven() {
    let server = two_dead().await;
    let body = json!({"filter": {"kind": "k", "error": "error 2"}});
    assert_eq!(
        server.post("/v1/tasks:redrive", body).await.body,
        came(1, false, 1)
    );
    assert_eq!(keys(&server, "dead").await, "1");
}

#[tokio::test]
async fn the_dead_that_match_are_dismissed_in_parts_and_nothing_else() {
    let server = two_dead().await;
    let waiting = json!({"at": "2099-01-01T00:00:00Z"});
    server.put("/v1/tasks/k/3", waiting).await.is(201, "new");
    let dismiss = |limit| {
        let body = json!({"filter": {"kind": "k"}, "limit": limit});
        server.post("/v1/tasks:dismiss", body)
    };
    assert_eq!(dismiss(1).await.body, came(1, true, 1));
    assert_eq!(dismiss(10).await.body, came(1, false, 1));
    assert_eq!(keys(&server, "cancelled").await, "1 2");
    assert_eq!(keys(&server, "scheduled").await, "3");
}

#[tokio::test]
async fn a_change_in_bulk_that_cannot_be_made_is_refused_by_name() {
    let server = Server::start();
    let k = json!({"kind": "k"});
    for (verb, body, said) in [
        ("cancel", json!({}), "filter"),
        ("cancel", json!({"filter": {}}), "kind"),
        ("cancel", json!({"filter": {"kind": "k", "key": "1"}}), "key"),
        (
            "cancel",
            json!({"filter": k, "limit": 0}),
            "allowed are 1 to 10000",
        ),
        (
            "cancel",
            json!({"filter": k, "limit": 10_001}),
            "allowed are 1 to 10000",
        ),
        (
            "run",
            json!({"filter": {"kind": "k", "due_before": "soon"}}),
            "due_before",
        ),
        ("redrive", json!({"filter": {"kind": ""}}), "kind"),
        ("reschedule", json!({"filter": k}), "after"),
        ("shift", json!({"filter": k, "by": "1h"}), "by is"),
    ] {
        server
            .post(&format!("/v1/tasks:{verb}"), body)
            .await
            .refuses(400, said);
    }
    assert_eq!(server.get("/v1/tasks:cancel").await.status, 405);
}
