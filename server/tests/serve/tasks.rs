//! Tasks that are there.

use serde_json::json;

use crate::server::Server;

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
    let mut path = "/v1/tasks?kind=k&limit=3".to_owned();
    let mut seen = Vec::new();
    let mut pages = 0;
    loop {
        let page = server.get(&path).await;
        assert_eq!(page.status, 200);
        let keys = page.body["tasks"].as_array().unwrap().iter();
        seen.extend(keys.map(|task| task["key"].as_str().unwrap().to_owned()));
        pages += 1;
        let Some(cursor) = page.body["cursor"].as_str() else {
            break;
        };
        path = format!("/v1/tasks?kind=k&limit=3&cursor={cursor}");
    }
    assert_eq!((pages, seen.concat().as_str()), (3, "6543210"));
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
        ("", "kind"),
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
