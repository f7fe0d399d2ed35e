//! Rows that cannot be read: edited by hand, or written by a later release.

use std::time::Duration;

use sqlx::AssertSqlSafe;

use super::{Fixture, LEASE, change, claim, due_rows, each, id, new_row, run, wakes};
use crate::clock::Clock;
use crate::store::sqlite::SqliteStore;
use crate::store::{Ahead, Claim, Ending, Guarded, NewRow, Page, Renewal, Step, Store, Sweep, Verb};
use crate::{Answer, Kind, Scheduled, State, TaskId};

/// Ways to spoil a row, each of another column.
const SPOILS: [&str; 11] = [
    "headers = 'no JSON'",
    "hop = -1",
    "attempt = 'many'",
    "stalls = -1",
    "version = -1",
    "max_attempts = -1",
    "planned_at = 'soon'",
    "owner = x'FF'",
    "started = 'yes'",
    "id = x'00'",
    "kind = x'FF'",
];

/// The rows of the others.
const SOUND: std::ops::Range<usize> = 1..21;

fn sweep(limit: usize) -> Sweep {
    let ahead = Ahead {
        within: LEASE,
        limit: 100,
    };
    Sweep {
        limit,
        retake: LEASE,
        ahead: Some(ahead),
    }
}

fn done(id: TaskId, version: u64) -> Step {
    Step::end(id, version, Ending::Done)
}

impl Fixture {
    /// A row that is due before all others, spoilt.
    async fn spoilt(&self, number: usize, how: &str) {
        self.insert(due_rows([number])).await;
        let sql = format!("UPDATE delayline_tasks SET due_at = due_at - 1000, {how} WHERE id = ?1");
        let spoil = sqlx::query(AssertSqlSafe(sql)).bind(id(number).as_bytes().to_vec());
        spoil.execute(&mut self.foreign().await).await.unwrap();
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_stops_no_other() {
    for spoil in SPOILS {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        fixture.spoilt(0, spoil).await;
        fixture.insert(due_rows(SOUND)).await;
        let soon = |number| new_row(number, Duration::from_secs(20));
        fixture.insert((100..105).map(soon).collect()).await;
        let ahead = store.sweep(&claim(0), &sweep(0)).await.unwrap().found.ahead;
        assert!(ahead.len() >= 5, "{spoil}");
        let page = Page::new("k", State::Scheduled).limit(10);
        assert_eq!(store.list(&page).await.unwrap().len(), 10, "{spoil}");

        let arrived = store.arrive(&wakes(0..6), &claim(100)).await.unwrap().found;
        // A claim writes who has it.
        let is_mended = spoil.starts_with("owner");
        assert_eq!(arrived.claimed.len(), 5 + usize::from(is_mended), "{spoil}");
        let ready = store.ready(&claim(5)).await.unwrap().found;
        assert_eq!(ready.len(), 5, "{spoil}");
        let swept = store.sweep(&claim(100), &sweep(500)).await.unwrap().found;
        assert_eq!(swept.claimed.len(), 10, "{spoil}");
        assert_eq!(store.purge(100).await.unwrap(), 0, "{spoil}");
    }
}

#[tokio::test]
async fn a_claim_whose_row_cannot_be_read_holds_up_no_other() {
    // Each is read before a claim is renewed or ended.
    for spoil in ["version = -1", "kind = x'FF'", "planned_at = 'soon'"] {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        fixture.insert(due_rows(0..3)).await;
        store.ready(&claim(2)).await.unwrap();
        fixture.spoilt(9, "hop = 0").await;
        let sql = format!("UPDATE delayline_tasks SET {spoil} WHERE id = ?1");
        let spoilt = sqlx::query(AssertSqlSafe(sql)).bind(id(0).as_bytes().to_vec());
        spoilt.execute(&mut fixture.foreign().await).await.unwrap();

        let renewal = |number| Renewal {
            id: id(number),
            version: 2,
            started: true,
        };
        let renewed = store.renew(&[renewal(0), renewal(1)], LEASE).await.unwrap();
        assert_eq!(renewed, [Guarded::Blocked, Guarded::Done], "{spoil}");
        let hop = |number| Step::hop(id(number), 1, LEASE);
        let hopped = store.advance(&[hop(0), hop(2)]).await.unwrap();
        assert_eq!(hopped, [Guarded::Blocked, Guarded::Done], "{spoil}");
        let settled = store.advance(&[done(id(0), 2), done(id(1), 2)]).await.unwrap();
        assert_eq!(settled, [Guarded::Blocked, Guarded::Done], "{spoil}");
    }
}

#[tokio::test]
async fn rows_that_cannot_be_read_are_in_nobodys_way_however_many_they_are() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for number in 0..10 {
        fixture.spoilt(number, SPOILS[number % 2]).await;
    }
    fixture.insert(due_rows(10..14)).await;
    // Less room, and a lower limit, than there are rows to leave out.
    let ready = store.ready(&claim(2)).await.unwrap().found;
    assert_eq!(ready.len(), 2);

    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for number in 0..10 {
        fixture.spoilt(number, SPOILS[number % 2]).await;
    }
    fixture.insert(due_rows(10..14)).await;
    let mut claimed = 0;
    for _ in 0..20 {
        let looked = store.sweep(&claim(2), &sweep(2)).await.unwrap().found;
        claimed += looked.claimed.len();
    }
    assert_eq!(claimed, 4);
}

#[tokio::test]
async fn a_verb_says_of_its_row_alone_that_it_cannot_be_read() {
    let fixture = Fixture::new().await;
    let named = |number, key: &str| NewRow {
        key: Some(key.into()),
        ..new_row(number, LEASE)
    };
    fixture
        .insert(vec![named(1, "a"), named(2, "b"), new_row(3, LEASE)])
        .await;
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "UPDATE delayline_tasks SET headers = 'x' WHERE key = 'a'; \
         UPDATE delayline_tasks SET state = 9 WHERE id = x'00000000000000000000000000000003'",
    )
    .await;

    let rows = vec![named(4, "a"), named(5, "c"), new_row(1, LEASE), named(6, "b")];
    let answers = fixture.store.insert(rows).await.unwrap().found;
    assert!(matches!(answers[1], Ok(Scheduled::New(_))));
    assert!(matches!(answers[3], Ok(Scheduled::Existing(_))));
    for refused in [&answers[0], &answers[2]] {
        let error = refused.as_ref().unwrap_err();
        assert!(!error.is_transient());
        assert!(error.to_string().contains("headers"), "{error}");
    }

    let cancel = |number| change(id(number), Verb::Cancel);
    let changes = vec![
        cancel(1),
        cancel(2),
        change(("k", "a"), Verb::Cancel),
        cancel(3),
        cancel(9),
    ];
    let mut answers = fixture.store.change(changes).await.unwrap().found;
    assert_eq!(answers.pop().unwrap().unwrap(), Answer::NotFound);
    let error = answers.pop().unwrap().unwrap_err();
    assert!(error.to_string().contains("state has the value 9"), "{error}");
    assert!(answers.pop().unwrap().is_err());
    assert!(answers.pop().unwrap().unwrap().is_done());
    assert!(answers.pop().unwrap().is_err());
    assert!(fixture.store.find(&("k", "a").into()).await.is_err());
}

#[tokio::test]
async fn a_finished_row_that_cannot_be_read_keeps_nobody_from_its_key() {
    let fixture = Fixture::new().await;
    let named = |number| NewRow {
        key: Some("a".into()),
        ..new_row(number, LEASE)
    };
    fixture.insert(vec![named(1)]).await;
    each(
        fixture
            .store
            .change(vec![change(id(1), Verb::Cancel)])
            .await
            .unwrap()
            .found,
    );
    run(
        &mut fixture.foreign().await,
        "UPDATE delayline_tasks SET headers = 'x'",
    )
    .await;
    // Of what has ended nothing can be said, and nothing need be for a new row.
    assert!(fixture.store.find(&("k", "a").into()).await.is_err());
    let added = fixture.insert(vec![named(2), named(3)]).await;
    assert!(matches!(added[..], [Scheduled::New(_), Scheduled::Existing(_)]));
    assert_eq!(
        fixture.store.find(&("k", "a").into()).await.unwrap().unwrap().id,
        id(2)
    );
}

#[tokio::test]
async fn history_that_cannot_be_read_is_removed_as_well() {
    let fixture = Fixture::new().await;
    let store = fixture.without_history().await;
    fixture.insert(due_rows(1..3)).await;
    let cancels = [1, 2].map(|number| change(id(number), Verb::Cancel));
    store.change(cancels.into()).await.unwrap();
    run(
        &mut fixture.foreign().await,
        "UPDATE delayline_tasks SET hop = -1, headers = 'x'",
    )
    .await;
    assert_eq!(store.purge(100).await.unwrap(), 2);
}

#[tokio::test]
async fn columns_and_states_of_a_later_release_stop_nobody() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    fixture.insert(due_rows(0..4)).await;
    run(
        &mut fixture.foreign().await,
        "ALTER TABLE delayline_tasks ADD COLUMN tenant TEXT NOT NULL DEFAULT ''; \
         UPDATE delayline_tasks SET state = 7 WHERE id = x'00000000000000000000000000000000'; \
         INSERT INTO delayline_migrations VALUES (2, 0)",
    )
    .await;
    fixture.insert(due_rows(4..6)).await;
    let claimed = store.ready(&claim(100)).await.unwrap().found;
    assert_eq!(claimed.len(), 5);
    let ends = claimed.iter().map(|task| done(task.id, task.version));
    assert_eq!(
        store.advance(&ends.collect::<Vec<_>>()).await.unwrap(),
        [Guarded::Done; 5]
    );
    let found = fixture.change(vec![change(id(5), Verb::Cancel)]).await;
    assert!(matches!(found[..], [Answer::Finished(_)]));
    // Who starts anew is told.
    let error = store.check().await.unwrap_err();
    assert!(error.to_string().contains("use a later release"), "{error}");
}

#[tokio::test]
async fn a_row_that_was_mended_is_looked_at_again_after_a_while() {
    let fixture = Fixture::new().await;
    let clock = Clock::system();
    let store = SqliteStore::builder(fixture.path()).clock(clock.clone());
    let store = store.open().await.unwrap();
    let mend: &'static str = "UPDATE delayline_tasks SET headers = '{}'";
    // By a claim, and by a sweep, it is put out of the way.
    for is_swept in [false, true] {
        fixture.spoilt(1 + usize::from(is_swept), "headers = 'x'").await;
        let found = match is_swept {
            false => store.ready(&claim(9)).await.unwrap().found,
            true => store.sweep(&claim(9), &sweep(9)).await.unwrap().found.claimed,
        };
        assert_eq!(found, []);
        run(&mut fixture.foreign().await, mend).await;
        clock.step(29_000);
        assert_eq!(store.sweep(&claim(9), &sweep(9)).await.unwrap().found.expired, 0);
        clock.step(32_000);
        let swept = store.sweep(&claim(9), &sweep(9)).await.unwrap().found;
        assert_eq!((swept.expired, swept.claimed.len()), (1, 1), "swept: {is_swept}");
        // As it was: it had no attempt, and has its first.
        assert_eq!((swept.claimed[0].attempt, swept.claimed[0].headers.len()), (1, 0));
        let end = done(swept.claimed[0].id, swept.claimed[0].version);
        assert_eq!(store.advance(&[end]).await.unwrap(), [Guarded::Done]);
    }
}

#[tokio::test]
async fn a_claim_that_a_later_release_holds_is_not_put_aside() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1])).await;
    let claimed = fixture.store.ready(&claim(1)).await.unwrap().found;
    run(
        &mut fixture.foreign().await,
        "UPDATE delayline_tasks SET headers = 'x'",
    )
    .await;
    fixture.store.sweep(&claim(9), &sweep(9)).await.unwrap();
    run(
        &mut fixture.foreign().await,
        "UPDATE delayline_tasks SET headers = '{}'",
    )
    .await;
    assert_eq!(fixture.find(id(1)).await, claimed[0]);
}

#[tokio::test]
async fn kinds_are_told_beside_rows_that_cannot_be_read() {
    let fixture = Fixture::new().await;
    fixture.spoilt(0, "hop = -1").await;
    let other = NewRow {
        kind: "other".into(),
        ..new_row(1, LEASE)
    };
    fixture.insert(vec![other]).await;
    let kinds = fixture.store.kinds(State::Scheduled, None, 10).await.unwrap();
    assert_eq!(kinds, [Kind::from("k"), Kind::from("other")]);
    let lone = Claim {
        room: [(Kind::from("other"), 1)].into(),
        ..claim(0)
    };
    assert!(fixture.store.ready(&lone).await.unwrap().found.is_empty());
}
