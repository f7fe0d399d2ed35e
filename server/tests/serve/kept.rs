//! What is kept of the tasks of a kind, on a clock that is turned.

use serde_json::{Value, json};

use crate::server::{ANY_PORT, Server};
use crate::test_clock::{standing, turned};

/// How many minutes pass until a task is gone.
async fn minutes_until_gone(server: &Server, path: &str) -> u32 {
    for minutes in 0..1_000 {
        if server.get(path).await.status == 404 {
            return minutes;
        }
        turned(server, json!({"by": "1m"})).await;
    }
    panic!("{path} is never removed")
}

#[tokio::test]
async fn what_is_kept_of_a_kind_is_as_long_as_its_file_says() {
    let kinds = |of_report: &str| format!("{ANY_PORT}[kinds.report]\ndeliver = \"pull\"\n{of_report}");
    let server = standing(&kinds("").replace(ANY_PORT, ""));
    let run = async |kind: &str, key: &str, end: &str| {
        server
            .put(&format!("/v1/tasks/{kind}/{key}"), json!({"after": "0"}))
            .await
            .is(201, "new");
        turned(&server, json!({"by": "1s"})).await;
        let taken = server.post("/v1/claims", json!({"kinds": [kind]})).await.body;
        let claim = taken["claims"][0]["claim"].as_str().unwrap().to_owned();
        let body = if end == "discard" {
            json!({"reason": "no use"})
        } else {
            json!({})
        };
        server
            .post(&format!("/v1/claims/{claim}/{end}"), body)
            .await
            .status
    };
    let events = async |path: &str| {
        let told = server.get(&format!("{path}?explain=1")).await.body;
        let events = told["history"].as_array().unwrap().iter();
        events.map(|entry| entry["event"].clone()).collect::<Vec<Value>>()
    };
    // Before: for seven days, and for ever.
    assert_eq!(run("report", "before", "done").await, 200);
    assert_eq!(events("/v1/tasks/report/before").await, ["scheduled"]);

    let brief = "history = \"all\"\nkeep_ended = \"30m\"\nkeep_dead = \"1h\"";
    server.reload(&kinds(brief)).await;
    for kind in ["report", "other"] {
        assert_eq!(run(kind, "done", "done").await, 200);
        assert_eq!(run(kind, "dead", "discard").await, 200);
    }
    assert_eq!(
        events("/v1/tasks/report/done").await,
        ["scheduled", "claimed", "done"]
    );
    assert_eq!(events("/v1/tasks/other/done").await, ["scheduled"]);
    let ended = minutes_until_gone(&server, "/v1/tasks/report/done").await;
    // Looked for every 60 sweeps, of which each minute has one at the least.
    assert!((30..=95).contains(&ended), "{ended}");
    let dead = ended + minutes_until_gone(&server, "/v1/tasks/report/dead").await;
    assert!((60..=125).contains(&dead), "{dead}");
    for there in ["report/before", "other/done", "other/dead"] {
        assert_eq!(
            server.get(&format!("/v1/tasks/{there}")).await.status,
            200,
            "{there}"
        );
    }
    // Said no more, it is as for all others.
    server.reload(&kinds("")).await;
    assert_eq!(run("report", "after", "discard").await, 200);
    assert_eq!(events("/v1/tasks/report/after").await, ["scheduled", "dead"]);
    turned(&server, json!({"by": "3000d"})).await;
    assert_eq!(server.get("/v1/tasks/report/after").await.status, 200);
}
