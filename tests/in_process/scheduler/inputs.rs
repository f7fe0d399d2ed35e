//! What cannot be used is refused by name, and nothing is written.

use std::collections::BTreeMap;
use std::time::Duration;

use delayline::store::{Expect, Target};
use delayline::{Error, NewTask, Shift, TaskId, Timestamp};

use crate::support::{KIND, World, secs};

/// A key of `bytes` bytes.
fn long(bytes: usize) -> String {
    "k".repeat(bytes)
}

fn assert_names(error: &Error, field: &str, value: &str, allowed: &str) {
    let text = error.to_string();
    assert!(matches!(error, Error::Invalid { .. }), "{error:?}");
    assert!(!error.is_transient(), "{text}");
    for part in [field, value, allowed] {
        assert!(text.contains(part), "{part:?} is not in {text:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_used_is_refused_by_field_value_and_what_is_allowed() {
    let world = World::new();
    let beyond = Timestamp::from_millis(Timestamp::MAX.as_millis() + 1);
    let cases = [
        (NewTask::new("", &1), "kind", "\"\"", "1 to 100 bytes"),
        (NewTask::new(long(101), &1), "kind", &*long(101), "1 to 100 bytes"),
        // Counted in bytes, not in characters.
        (NewTask::new("é".repeat(51), &1), "kind", "é", "1 to 100 bytes"),
        (
            NewTask::new("a\nb", &1),
            "kind",
            "a\\nb",
            "without control characters",
        ),
        (NewTask::new(KIND, &1).key(""), "key", "\"\"", "1 to 255 bytes"),
        (
            NewTask::new(KIND, &1).key(long(256)),
            "key",
            &*long(256),
            "1 to 255 bytes",
        ),
        (
            NewTask::new(KIND, &1).key("a\0"),
            "key",
            "a\\0",
            "without control characters",
        ),
        (
            NewTask::new(KIND, &1).key("refund\u{202e}7-redro"),
            "key",
            "\\u{202e}",
            "and bidirectional overrides",
        ),
        (
            NewTask::new("a\u{2066}b", &1),
            "kind",
            "\\u{2066}",
            "and bidirectional overrides",
        ),
        (
            NewTask::new(KIND, &1).max_attempts(0),
            "max_attempts",
            "0",
            "1 or more",
        ),
        (
            NewTask::new(KIND, &1).at(beyond),
            "due time",
            "253402300800000",
            "9999-12-31T23:59:59.999Z",
        ),
        (
            NewTask::new(KIND, &1).after(Duration::MAX),
            "due time",
            "after",
            "9999-12-31T23:59:59.999Z",
        ),
    ];
    for (task, field, value, allowed) in cases {
        let error = world.scheduler.schedule(task).await.unwrap_err();
        assert_names(&error, field, value, allowed);
    }
    assert!(world.every_row().await.is_empty());
    assert!(world.precise.log().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_payload_that_cannot_be_encoded_is_refused_with_its_kind_and_the_reason() {
    let world = World::new();
    let payload = BTreeMap::from([((1, 2), "a map with keys that are no strings")]);
    let error = world
        .scheduler
        .schedule(NewTask::new(KIND, &payload))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Encode { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains(KIND) && text.contains("key must be a string"),
        "{text}"
    );
    assert!(world.every_row().await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_longest_names_and_the_last_moment_can_be_used() {
    let world = World::new();
    let (kind, key) = (long(100), long(255));
    let task = NewTask::new(kind.as_str(), &1)
        .key(key.as_str())
        .at(Timestamp::MAX);
    let scheduled = world.scheduler.schedule(task).await.unwrap();
    assert_eq!(scheduled.task().due_at, Timestamp::MAX);
    let found = world.scheduler.find((kind, key)).await.unwrap();
    assert_eq!(found.as_ref(), Some(scheduled.task()));
}

#[tokio::test(start_paused = true)]
async fn every_verb_refuses_a_name_or_a_time_that_cannot_be_used_and_changes_nothing() {
    let world = World::new();
    let scheduler = &world.scheduler;
    let row = scheduler
        .schedule(NewTask::new(KIND, &1).after(secs(60)))
        .await
        .unwrap();
    let row = row.task().clone();

    let bad = || (KIND, "");
    let errors = [
        scheduler.cancel(bad()).await.unwrap_err(),
        scheduler.run_now(bad()).await.unwrap_err(),
        scheduler.redrive(bad()).await.unwrap_err(),
        scheduler.reschedule(bad(), secs(1)).await.unwrap_err(),
        scheduler.shift(bad(), Shift::Later(secs(1))).await.unwrap_err(),
        scheduler
            .shift_if(bad(), Expect::Version(1), Shift::Later(secs(1)))
            .await
            .unwrap_err(),
        scheduler.find(bad()).await.unwrap_err(),
        // One bad name, and the good one before it is left alone too.
        scheduler
            .cancel_all([Target::from(row.id), Target::from(bad())])
            .await
            .unwrap_err(),
    ];
    for error in errors {
        assert_names(&error, "key", "\"\"", "1 to 255 bytes");
    }
    let error = scheduler.cancel(("", "key")).await.unwrap_err();
    assert_names(&error, "kind", "\"\"", "1 to 100 bytes");
    let page = delayline::store::Page::new("", delayline::State::Done).limit(1);
    assert_names(
        &scheduler.list(&page).await.unwrap_err(),
        "kind",
        "\"\"",
        "1 to 100 bytes",
    );

    let beyond = Timestamp::from_millis(Timestamp::MAX.as_millis() + 1);
    for error in [
        scheduler.reschedule(row.id, beyond).await.unwrap_err(),
        scheduler.reschedule(row.id, Duration::MAX).await.unwrap_err(),
        scheduler
            .shift(row.id, Shift::Later(Duration::MAX))
            .await
            .unwrap_err(),
    ] {
        assert_names(&error, "due time", "", "9999-12-31T23:59:59.999Z");
    }
    assert_eq!(world.row(row.id).await, row);
}

#[test]
fn an_id_that_is_none_is_refused_by_its_text() {
    let error = "order-1".parse::<TaskId>().unwrap_err();
    assert_names(&error, "task id", "order-1", "a UUID");
}

#[tokio::test(start_paused = true)]
async fn a_forecast_that_cannot_be_made_is_refused() {
    let world = World::new();
    let forecast = |kind: String, spans| {
        let scheduler = world.scheduler.clone();
        async move { scheduler.forecast(kind, &vec![Duration::MAX; spans]).await }
    };
    assert_eq!(forecast(KIND.to_owned(), 32).await.unwrap(), [0; 32]);
    let error = forecast(KIND.to_owned(), 33).await.unwrap_err();
    assert_names(&error, "within", "33 spans", "up to 32");
    let error = forecast(String::new(), 1).await.unwrap_err();
    assert_names(&error, "kind", "\"\"", "1 to 100 bytes");
}
