//! Rows that cannot be read: edited by hand, or written by a later release.

use std::time::Duration;

use super::{Fixture, LEASE, change, claim, due_rows, id, is, new_row, run, wakes};
use crate::store::sql::tests::each::Each;
use crate::store::{Ahead, Claim, Ending, Guarded, NewRow, Page, Renewal, Step, Store, Sweep, Verb};
use crate::{Answer, Scheduled, State, TaskId};

/// Ways to spoil a row, each of another column.
const SPOILS: [&str; 4] = [
    "headers = 'no JSON'",
    "kind = X'FF'",
    "`key` = X'FF'",
    "version = 18446744073709551614",
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
        self.store.insert_all(due_rows([number])).await.unwrap();
        let spoil = format!(
            "UPDATE delayline_tasks SET due_at = due_at - 1000, {how} WHERE {}",
            is(number)
        );
        run(&mut self.foreign().await, &spoil).await;
    }
}

#[tokio::test]
async fn a_row_that_cannot_be_read_stops_no_other() {
    for spoil in SPOILS {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        fixture.spoilt(0, spoil).await;
        fixture.store.insert_all(due_rows(SOUND)).await.unwrap();
        let soon = |number| new_row(number, Duration::from_secs(20));
        fixture
            .store
            .insert_all((100..105).map(soon).collect())
            .await
            .unwrap();
        let ahead = store.sweep(&claim(0), &sweep(0)).await.unwrap().found.ahead;
        assert!(ahead.len() >= 5, "{spoil}");
        let page = Page::new("k", State::Scheduled).limit(10);
        assert_eq!(store.list(&page).await.unwrap().len(), 10, "{spoil}");

        let arrived = store.arrive(&wakes(0..6), &claim(100)).await.unwrap().found;
        assert_eq!(arrived.claimed.len(), 5, "{spoil}");
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
    for spoil in ["version = 18446744073709551614", "kind = X'FF'", "`key` = X'FF'"] {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        fixture.store.insert_all(due_rows(0..3)).await.unwrap();
        store.ready(&claim(2)).await.unwrap();
        fixture.spoilt(9, "hop = 0").await;
        let sql = format!("UPDATE delayline_tasks SET {spoil} WHERE {}", is(0));
        run(&mut fixture.foreign().await, &sql).await;

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
    fixture.store.insert_all(due_rows(10..14)).await.unwrap();
    // Less room, and a lower limit, than there are rows to leave out.
    let ready = store.ready(&claim(2)).await.unwrap().found;
    assert_eq!(ready.len(), 2);

    let fixture = Fixture::new().await;
    let store = &fixture.store;
    for number in 0..10 {
        fixture.spoilt(number, SPOILS[number % 2]).await;
    }
    fixture.store.insert_all(due_rows(10..14)).await.unwrap();
    let mut claimed = 0;
    for _ in 0..20 {
        let looked = store.sweep(&claim(2), &sweep(2)).await.unwrap().found;
        claimed += looked.claimed.len();
    }
    assert_eq!(claimed, 4);
}

#[tokio::test]
async fn a_finished_row_that_cannot_be_read_keeps_nobody_from_its_key() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let named = |number| NewRow {
        key: Some("a".into()),
        ..new_row(number, LEASE)
    };
    store.insert_all(vec![named(1)]).await.unwrap();
    let cancel = vec![change(id(1), Verb::Cancel)];
    assert!(matches!(
        store.change_all(cancel).await.unwrap().found[..],
        [Answer::Done(_)]
    ));
    run(
        &mut fixture.foreign().await,
        "UPDATE delayline_tasks SET headers = 'x'",
    )
    .await;
    // Of what has ended nothing can be said, and nothing need be for a new row.
    assert!(store.find(&("k", "a").into()).await.is_err());
    let added = store.insert_all(vec![named(2), named(3)]).await.unwrap().found;
    assert!(matches!(added[..], [Scheduled::New(_), Scheduled::Existing(_)]));
    assert_eq!(store.find(&("k", "a").into()).await.unwrap().unwrap().id, id(2));
}

#[tokio::test]
async fn history_that_cannot_be_read_is_removed_as_well() {
    let fixture = Fixture::new().await;
    let builder = crate::store::MySqlStore::builder(fixture.url.parse().unwrap());
    let store = builder.keep_history(Duration::ZERO).connect().await.unwrap();
    store.insert_all(due_rows(1..3)).await.unwrap();
    let cancels = [1, 2].map(|number| change(id(number), Verb::Cancel));
    store.change_all(cancels.into()).await.unwrap();
    run(
        &mut fixture.foreign().await,
        "UPDATE delayline_tasks SET headers = 'x'",
    )
    .await;
    assert_eq!(store.purge(100).await.unwrap(), 2);
}

#[tokio::test]
async fn a_row_that_was_mended_is_looked_at_again_after_a_while() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut other = fixture.foreign().await;
    let brief = Claim {
        lease: Duration::from_secs(1),
        ..claim(9)
    };
    // By a claim, and by a sweep, it is put out of the way.
    for is_swept in [false, true] {
        let number = 1 + usize::from(is_swept);
        fixture.spoilt(number, "headers = 'x'").await;
        let found = match is_swept {
            false => store.ready(&brief).await.unwrap().found,
            true => store.sweep(&brief, &sweep(9)).await.unwrap().found.claimed,
        };
        assert_eq!(found, []);
        run(&mut other, "UPDATE delayline_tasks SET headers = '{}'").await;
        assert_eq!(store.sweep(&claim(9), &sweep(9)).await.unwrap().found.expired, 0);
        run(
            &mut other,
            "UPDATE delayline_tasks SET wake_at = 0 WHERE state = 1",
        )
        .await;
        let swept = store.sweep(&claim(9), &sweep(9)).await.unwrap().found;
        assert_eq!((swept.expired, swept.claimed.len()), (1, 1), "swept: {is_swept}");
        // As it was: it had no attempt, and has its first.
        assert_eq!((swept.claimed[0].attempt, swept.claimed[0].headers.len()), (1, 0));
        let end = done(swept.claimed[0].id, swept.claimed[0].version);
        assert_eq!(store.advance(&[end]).await.unwrap(), [Guarded::Done]);
    }
}
