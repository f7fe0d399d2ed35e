//! Kinds: which there are, and those that are paused.

use serde_json::json;

use crate::server::{ANY_PORT, Server};

#[tokio::test]
async fn kinds_are_listed_with_their_states() {
    let server = Server::start();
    for kind in ["c", "a", "b"] {
        server
            .put(&format!("/v1/tasks/{kind}/1"), json!({"after": "1h"}))
            .await
            .is(201, "new");
    }
    server
        .put("/v1/tasks/b/2", json!({"after": "1h"}))
        .await
        .is(201, "new");
    server
        .post("/v1/tasks/b/2/cancel", json!({}))
        .await
        .is(200, "done");
    server
        .post("/v1/tasks/c/1/cancel", json!({}))
        .await
        .is(200, "done");
    let [a, b, c] = [
        json!({"kind": "a", "states": ["scheduled"]}),
        json!({"kind": "b", "states": ["scheduled", "cancelled"]}),
        json!({"kind": "c", "states": ["cancelled"]}),
    ];
    let kinds = async |search: &str| server.get(&format!("/v1/kinds{search}")).await.body;
    assert_eq!(kinds("").await, json!({"kinds": [a, b, c]}));
    assert_eq!(kinds("?limit=2").await, json!({"kinds": [a, b]}));
    assert_eq!(kinds("?limit=2&after=b").await, json!({"kinds": [c]}));
    for search in ["?limit=0", "?limit=501", "?state=dead"] {
        let answer = server.get(&format!("/v1/kinds{search}")).await;
        assert_eq!(answer.status, 400, "{search}");
    }
}

#[tokio::test]
async fn the_tasks_of_a_paused_kind_are_not_given_until_it_is_resumed() {
    let server = Server::start();
    for kind in ["report", "other"] {
        let path = format!("/v1/tasks/{kind}/1");
        server.put(&path, json!({"after": "0s"})).await.is(201, "new");
    }
    let why = json!({"reason": "the disk is full", "until": "2099-01-01T00:00:00Z"});
    let paused = server.post("/v1/kinds/report/pause", why).await;
    assert_eq!(
        (paused.status.as_u16(), &paused.body["reason"]),
        (200, &json!("the disk is full"))
    );
    assert_eq!(paused.body["until"], "2099-01-01T00:00:00Z");
    assert_eq!(paused.body["actor"], "api:anybody");
    let take = json!({"kinds": ["report", "other"], "max": 10});
    let taken = server.post("/v1/claims", take.clone()).await.body;
    let taken = taken["claims"].as_array().unwrap();
    assert_eq!((taken.len(), &taken[0]["task"]["kind"]), (1, &json!("other")));

    let kinds = server.get("/v1/kinds").await.body;
    let of = |kind: &str| {
        let mut kinds = kinds["kinds"].as_array().unwrap().iter();
        kinds.find(|found| found["kind"] == kind).cloned()
    };
    assert_eq!(of("report").unwrap()["paused"], paused.body);
    assert_eq!(of("other").unwrap().get("paused"), None);
    assert_eq!(of("delayline.paused"), None, "a pause is told of with its kind");

    let resumed = server.post("/v1/kinds/report/resume", json!({})).await;
    assert_eq!(
        (resumed.status.as_u16(), resumed.body),
        (200, json!({"was_paused": true}))
    );
    let waiting = json!({"kinds": ["report"], "max": 10, "wait": "30s"});
    let taken = server.post("/v1/claims", waiting).await.body;
    assert_eq!(taken["claims"].as_array().unwrap().len(), 1);
    let resumed = server.post("/v1/kinds/report/resume", json!({})).await;
    assert_eq!(resumed.body, json!({"was_paused": false}));
    let mark = server
        .get("/v1/tasks/delayline.paused/report?explain=1")
        .await
        .body;
    let history = mark["history"].as_array().unwrap().iter();
    let done: Vec<_> = history
        .map(|entry| (entry["event"].clone(), entry["actor"].clone()))
        .collect();
    let by = |event: &str| (json!(event), json!("api:anybody"));
    assert_eq!(done, [by("paused"), by("resumed")]);
    assert!(server.log().contains("a kind is resumed"));
}

#[tokio::test]
async fn a_kind_is_paused_for_all_servers_and_also_before_there_are_tasks_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let config = format!("[store]\nurl = \"sqlite:{}\"\n{ANY_PORT}", file.display());
    let (one, other) = (Server::configured(&config), Server::configured(&config));
    let paused = one.post("/v1/kinds/report/pause", json!({})).await;
    assert_eq!(
        (paused.status.as_u16(), &paused.body["reason"]),
        (200, &json!(""))
    );
    let kinds = other.get("/v1/kinds").await.body;
    assert_eq!(
        kinds,
        json!({"kinds": [{"kind": "report", "states": [], "paused": paused.body}]})
    );
    other
        .put("/v1/tasks/report/1", json!({"after": "0s"}))
        .await
        .is(201, "new");
    let take = json!({"kinds": ["report"], "max": 10, "wait": "1s"});
    assert_eq!(other.post("/v1/claims", take).await.body, json!({"claims": []}));
}

#[tokio::test]
async fn a_pause_that_cannot_be_is_refused_by_its_field() {
    let server = Server::start();
    for (body, said) in [
        (json!({"until": "2001-01-01T00:00:00Z"}), "until"),
        (json!({"until": "soon"}), "until"),
        (json!({"reason": "x".repeat(1_001)}), "reason"),
        (json!({"because": "x"}), "because"),
        (json!(["2099-01-01T00:00:00Z", "by their places"]), "array"),
    ] {
        server
            .post("/v1/kinds/report/pause", body)
            .await
            .refuses(400, said);
    }
    let path = format!("/v1/kinds/{}/pause", "x".repeat(101));
    server.post(&path, json!({})).await.refuses(400, "kind");
    server
        .post(
            "/v1/kinds/report/resume",
            json!({"until": "2099-01-01T00:00:00Z"}),
        )
        .await
        .refuses(400, "until");
}
