//! A server whose clock stands still unless it is turned.

use std::process::Output;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::IntoResponse as _;
use reqwest::Method;
use serde_json::{Value, json};

use crate::receiver::Receiver;
use crate::server::{ANY_PORT, Answer, Server, command};

/// A server with a clock that stands still, and this configuration.
pub(crate) fn standing(config: &str) -> Server {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("delayline.toml"),
        format!("{ANY_PORT}{config}"),
    )
    .unwrap();
    Server::of(folder, &["--test-clock", "--config", "delayline.toml"])
}

/// A server that posts the tasks of the kind `order.cancel`.
fn posting(receiver: &Receiver) -> Server {
    standing(&format!(
        "[webhooks]\nallow = [\"127.0.0.1\"]\n[kinds.\"order.cancel\"]\nattempts = 3\n\
         deliver = {{ url = \"{}\", secret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\" }}\n",
        receiver.url()
    ))
}

/// Turns the clock on, and gives what happened.
pub(crate) async fn turned(server: &Server, body: Value) -> Value {
    let answer = server.post("/v1/time/advance", body).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
    answer.body
}

/// What happened, in words.
pub(crate) fn words(turned: &Value) -> Vec<&str> {
    let events = turned["events"].as_array().unwrap().iter();
    events.map(|event| event["what"].as_str().unwrap()).collect()
}

async fn now(server: &Server) -> Value {
    server.get("/v1/time").await.body["now"].clone()
}

const ORDER: &str = "/v1/tasks/order.cancel/42";

fn unpaid() -> Value {
    json!({"after": "15m", "payload": {"order": 42}})
}

#[tokio::test]
async fn an_unpaid_order_is_posted_after_15_minutes_and_not_a_millisecond_before() {
    let mut receiver = Receiver::start(async |_| StatusCode::NO_CONTENT.into_response()).await;
    let server = posting(&receiver);
    let due = server.put(ORDER, unpaid()).await.is(201, "new")["due_at"].clone();

    let before = turned(&server, json!({"by": "14m 59s 999ms"})).await;
    assert_eq!((&before["events"], &before["waiting"]), (&json!([]), &json!(0)));
    assert!(receiver.is_empty());

    let after = turned(&server, json!({"by": "1ms"})).await;
    assert_eq!(words(&after), ["started", "webhook", "done"]);
    assert_eq!((&after["now"], &after["complete"]), (&due, &json!(true)));
    for event in after["events"].as_array().unwrap() {
        assert_eq!((&event["at"], &event["key"]), (&due, &json!("42")), "{event}");
        assert_eq!(
            (&event["kind"], &event["attempt"]),
            (&json!("order.cancel"), &json!(1))
        );
    }
    assert_eq!(after["events"][1]["status"], 204);
    // It is there already: the answer came when all had happened.
    assert!(!receiver.is_empty());
    assert_eq!(receiver.next().await.path, "/hooks");
    assert_eq!(now(&server).await, due);
    let late = &server.get("/v1/stats").await.body["stats"]["late"];
    assert_eq!(late["max_ms"], 0, "{late}");
}

#[tokio::test]
async fn a_paid_order_is_not_posted() {
    let receiver = Receiver::start(async |_| StatusCode::NO_CONTENT.into_response()).await;
    let server = posting(&receiver);
    server.put(ORDER, unpaid()).await.is(201, "new");
    turned(&server, json!({"by": "14m"})).await;
    server
        .post(&format!("{ORDER}/cancel"), json!({}))
        .await
        .is(200, "done");
    let turned = turned(&server, json!({"by": "366d"})).await;
    assert_eq!(turned["events"], json!([]));
    assert!(receiver.is_empty());
}

#[tokio::test]
async fn what_fails_is_tried_again_at_its_time_until_it_is_dead() {
    let receiver = Receiver::start(async |_| StatusCode::SERVICE_UNAVAILABLE.into_response()).await;
    let server = posting(&receiver);
    server.put(ORDER, unpaid()).await.is(201, "new");
    let turned = turned(&server, json!({"by": "1d"})).await;
    let attempt = ["started", "webhook", "retried"];
    assert_eq!(
        words(&turned),
        [attempt, attempt, ["started", "webhook", "dead"]].concat()
    );
    let events = turned["events"].as_array().unwrap();
    // Each begins when the one before said.
    for (ended, started) in [(2, 3), (5, 6)] {
        assert_eq!(events[ended]["due_at"], events[started]["at"]);
        assert_ne!(events[ended]["at"], events[started]["at"]);
    }
    assert_eq!(events[8]["attempt"], 3);
    assert_eq!(events[8]["reason"], "answered 503 Service Unavailable");
}

#[tokio::test]
async fn what_a_receiver_takes_long_for_is_waited_for_while_the_clock_stands() {
    let receiver = Receiver::start(async |before| {
        if before == 0 {
            tokio::time::sleep(Duration::from_millis(700)).await;
        }
        StatusCode::OK.into_response()
    })
    .await;
    let server = posting(&receiver);
    server.put(ORDER, json!({"after": "1m"})).await.is(201, "new");
    server
        .put("/v1/tasks/order.cancel/43", json!({"after": "61s"}))
        .await
        .is(201, "new");
    let turned = turned(&server, json!({"by": "1h"})).await;
    // The second only after the end of the first, though its time was a second later.
    let keys: Vec<_> = turned["events"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| &event["key"])
        .collect();
    assert_eq!(keys, ["42", "42", "42", "43", "43", "43"]);
    assert_eq!(words(&turned), ["started", "webhook", "done"].repeat(2));
}

#[tokio::test]
async fn what_is_to_be_claimed_is_left_due_and_leases_and_snoozes_end_at_their_times() {
    let server = standing("");
    let report = "/v1/tasks/report.build/1";
    server.put(report, json!({"after": "15m"})).await.is(201, "new");
    assert_eq!(turned(&server, json!({"by": "14m 59s"})).await["waiting"], 0);
    let due = turned(&server, json!({"by": "1s"})).await;
    assert_eq!((words(&due), &due["waiting"]), (vec!["waiting"], &json!(1)));
    // It is told once.
    assert_eq!(turned(&server, json!({"by": "1h"})).await["events"], json!([]));

    let claim = async || {
        let body = json!({"kinds": ["report.build"], "lease": "30s", "owner": "mike"});
        let claims = server.post("/v1/claims", body).await.body["claims"].take();
        claims[0]["claim"].as_str().unwrap().to_owned()
    };
    let lost = claim().await;
    assert_eq!(words(&turned(&server, json!({"by": "29s 999ms"})).await), [""; 0]);
    assert_eq!(
        words(&turned(&server, json!({"by": "1ms"})).await),
        ["lease_ended"]
    );
    server
        .post(&format!("/v1/claims/{lost}/done"), json!({}))
        .await
        .is(409, "lost");

    let claimed = claim().await;
    let snoozed = server
        .post(&format!("/v1/claims/{claimed}/snooze"), json!({"after": "10m"}))
        .await;
    snoozed.is(200, "done");
    assert_eq!(
        words(&turned(&server, json!({"by": "9m 59s 999ms"})).await),
        [""; 0]
    );
    assert_eq!(words(&turned(&server, json!({"by": "1ms"})).await), ["waiting"]);
    let claimed = claim().await;
    server
        .post(&format!("/v1/claims/{claimed}/done"), json!({}))
        .await
        .is(200, "done");
    assert_eq!(server.get(report).await.body["state"], "done");
}

#[tokio::test]
async fn a_worker_that_waits_claims_while_the_clock_is_turned_and_waits_by_real_time() {
    let server = standing("");
    server
        .put("/v1/tasks/report.build/1", json!({"after": "15m"}))
        .await
        .is(201, "new");
    let wanted = json!({"kinds": ["report.build"], "wait": "300ms"});
    // The clock stands, and the wait ends.
    assert_eq!(server.post("/v1/claims", wanted).await.body["claims"], json!([]));
    let wanted = json!({"kinds": ["report.build"], "wait": "60s", "owner": "mike"});
    let waiting = tokio::spawn(Answer::of(
        server.request(Method::POST, "/v1/claims").json(&wanted),
    ));
    // Turned on and on, as the worker may not be waiting yet.
    let mut due = false;
    let turned = loop {
        let turned = turned(&server, json!({"by": "5m"})).await;
        due |= !words(&turned).is_empty();
        if due {
            break turned;
        }
    };
    let claimed = waiting.await.unwrap().body["claims"].take();
    assert_eq!(claimed[0]["task"]["key"], "1");
    if turned["events"][0]["what"] == "claimed" {
        assert_eq!(turned["events"][0]["owner"], "mike");
        assert_eq!(turned["events"][0]["at"], claimed[0]["task"]["due_at"]);
    }
}

#[tokio::test]
async fn a_paused_kind_is_resumed_at_its_time() {
    let receiver = Receiver::start(async |_| StatusCode::OK.into_response()).await;
    let server = posting(&receiver);
    server.put(ORDER, unpaid()).await.is(201, "new");
    let until = server
        .put("/v1/tasks/x/1", json!({"after": "1h"}))
        .await
        .is(201, "new")["due_at"]
        .clone();
    let pause = server
        .post("/v1/kinds/order.cancel/pause", json!({"until": until}))
        .await;
    assert_eq!(pause.status, StatusCode::OK, "{pause:?}");
    let turned = turned(&server, json!({"by": "1h"})).await;
    assert_eq!(
        words(&turned),
        ["waiting", "started", "webhook", "done", "waiting"],
        "{turned}"
    );
    assert_eq!(turned["events"][1]["at"], until);
}

/// Nothing is done in a step for each half second: that would take minutes.
#[tokio::test]
async fn a_year_is_as_many_steps_as_there_are_times_at_which_tasks_are_due() {
    let receiver = Receiver::start(async |_| StatusCode::OK.into_response()).await;
    let server = posting(&receiver);
    let begun = Instant::now();
    turned(&server, json!({"by": "366d"})).await;
    println!("a year of nothing: {:?}", begun.elapsed());
    let minutes = |number: u64| number * 7_919 % 1_000 + 1;
    let tasks = (0..200).map(|number| {
        let (key, after) = (number.to_string(), format!("{}m", minutes(number)));
        json!({"kind": "order.cancel", "key": key, "after": after})
    });
    server.post("/v1/tasks", tasks.collect()).await;
    let begun = Instant::now();
    let turned = turned(&server, json!({"by": "366d"})).await;
    println!("a year with 200 webhooks: {:?}", begun.elapsed());
    assert_eq!(words(&turned), ["started", "webhook", "done"].repeat(200));
    let keys = turned["events"].as_array().unwrap().iter();
    let keys: Vec<u64> = keys
        .map(|event| event["key"].as_str().unwrap().parse().unwrap())
        .collect();
    assert!(keys.is_sorted_by_key(|&number| minutes(number)), "{keys:?}");
}

#[tokio::test]
async fn so_much_may_happen_that_the_clock_stops_on_its_way() {
    let server = standing("");
    for (after, count) in [("1m", 500), ("2m", 1)] {
        for batch in 0..if count == 1 { 1 } else { 20 } {
            let task =
                |number| json!({"kind": "k", "key": format!("{after} {batch} {number}"), "after": after});
            server.post("/v1/tasks", (0..count).map(task).collect()).await;
        }
    }
    let stopped = turned(&server, json!({"by": "1h"})).await;
    let events = stopped["events"].as_array().unwrap();
    assert_eq!((&stopped["complete"], events.len()), (&json!(false), 10_000));
    assert_eq!(stopped["now"], events[0]["at"]);
    // It goes on from there.
    let further = turned(&server, json!({"by": "1h"})).await;
    assert_eq!(
        (&further["complete"], words(&further)),
        (&json!(true), vec!["waiting"])
    );
    assert_eq!(further["waiting"], 10_001);
}

#[tokio::test]
async fn what_cannot_be_turned_is_refused() {
    let server = Server::start();
    server
        .post("/v1/time/advance", json!({"by": "15m"}))
        .await
        .refuses(409, "--test-clock");
    assert_eq!(server.get("/v1/time").await.body["test_clock"], false);

    let server = standing("");
    assert_eq!(server.get("/v1/time").await.body["test_clock"], true);
    let before = now(&server).await;
    for (body, said) in [
        (json!({}), "by is \"missing\": allowed is one of by"),
        (json!({"by": "1m", "to": before}), "not both"),
        (json!({"by": "3661d"}), "by is \"3661d\": allowed is up to 3660d"),
        (
            json!({"to": "2001-09-09T01:46:40Z"}),
            "to is \"2001-09-09T01:46:40Z\": allowed is a time from",
        ),
        (json!({"by": "1y"}), "by"),
        (json!({"for": "1m"}), "for"),
    ] {
        server.post("/v1/time/advance", body).await.refuses(400, said);
    }
    assert_eq!(now(&server).await, before);
    let there = turned(&server, json!({"to": before})).await;
    assert_eq!((&there["now"], &there["events"]), (&before, &json!([])));
}

#[tokio::test]
async fn it_is_turned_by_one_at_a_time() {
    let (enter, mut entered) = tokio::sync::mpsc::unbounded_channel();
    let (go, gone) = tokio::sync::watch::channel(false);
    let receiver = Receiver::start(move |_| {
        let (enter, mut gone) = (enter.clone(), gone.clone());
        async move {
            enter.send(()).unwrap();
            gone.wait_for(|gone| *gone).await.unwrap();
            StatusCode::OK.into_response()
        }
    })
    .await;
    let server = posting(&receiver);
    server.put(ORDER, unpaid()).await.is(201, "new");
    let body = json!({"by": "1h"});
    let turning = tokio::spawn(Answer::of(
        server.request(Method::POST, "/v1/time/advance").json(&body),
    ));
    entered.recv().await.unwrap();
    server
        .post("/v1/time/advance", body)
        .await
        .refuses(409, "one at a time");
    // It stands at what is under way.
    let due = server.get(ORDER).await.body["due_at"].clone();
    assert_eq!(now(&server).await, due);
    go.send(true).unwrap();
    assert_eq!(
        words(&turning.await.unwrap().body),
        ["started", "webhook", "done"]
    );
}

fn refused(config: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("delayline.toml"), config).unwrap();
    let mut command = command(folder.path());
    command
        .args(["--test-clock", "--config", "delayline.toml"])
        .args(arguments);
    command.output().unwrap()
}

#[test]
fn it_needs_rows_in_memory_and_says_so() {
    let store = "[store]\nurl = \"sqlite:rows.db\"\n";
    let redis = "[redis]\nurl = \"redis://:hunter2@127.0.0.1\"\n";
    for (config, arguments, said) in [
        (
            store,
            &["--check"][..],
            "--test-clock is given, and store.url is set",
        ),
        (store, &[], "tasks are in memory"),
        (redis, &[], "--test-clock is given, and redis.url is set"),
        (ANY_PORT, &["--demo"], "--demo"),
    ] {
        let output = refused(config, arguments);
        let complaint = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{complaint}");
        assert!(
            complaint.contains(said) && !complaint.contains("hunter2"),
            "{complaint}"
        );
    }
}
