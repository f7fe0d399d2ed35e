//! Renewals, which leave the rows of their tasks as they are.

use std::time::Duration;

use sqlx::MySqlConnection;

use super::{Fixture, LEASE, LEVELS, change, claim, due_rows, held, id, in_time, run, settlement};
use crate::store::sql::Each;
use crate::store::{Claim, Ending, Guarded, Note, Renewal, Store, Sweep, Transaction, Verb};
use crate::{Answer, State};

const HOUR: i64 = 3_600_000;

pub(super) fn sweep() -> Sweep {
    Sweep {
        limit: 100,
        retake: LEASE,
        ahead: None,
    }
}

/// A claim whose lease has ended.
fn brief(room: usize) -> Claim {
    Claim {
        lease: Duration::ZERO,
        ..claim(room)
    }
}

/// SERIALIZABLE is left out: every look of such a transaction locks what it sees.
fn cases() -> impl Iterator<Item = (&'static str, bool)> {
    LEVELS
        .into_iter()
        .flat_map(|level| [(level, false), (level, true)])
}

/// A service that has read rows in a transaction, at a level and with MariaDB's stricter snapshots or without.
async fn begun(fixture: &Fixture, level: &str, strict: bool) -> MySqlConnection {
    let mut service = fixture.foreign().await;
    let isolation = format!("SET SESSION TRANSACTION ISOLATION LEVEL {level}");
    run(&mut service, &isolation).await;
    if strict {
        // MySQL has none.
        run(
            &mut service,
            "SET @strict = 1 /*M! , SESSION innodb_snapshot_isolation = ON */",
        )
        .await;
    }
    run(&mut service, "START TRANSACTION").await;
    run(&mut service, "SELECT COUNT(*) FROM delayline_tasks").await;
    service
}

#[tokio::test]
async fn a_claim_that_was_renewed_meanwhile_can_be_finished_at_every_level() {
    for (level, strict) in cases() {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        store.insert_all(due_rows([1])).await.unwrap();
        store.ready(&claim(1)).await.unwrap();
        // What it sees of that is old by the end.
        store.renew(&[held(id(1), 2)], LEASE).await.unwrap();
        let mut service = begun(&fixture, level, strict).await;
        for started in [true, false] {
            let renewal = Renewal {
                started,
                ..held(id(1), 2)
            };
            assert_eq!(store.renew(&[renewal], LEASE).await.unwrap(), [Guarded::Done]);
        }
        assert!(fixture.find(1).await.started);
        let finished = in_time(store.join(&mut service).finish(id(1), 2, Note::default())).await;
        assert!(finished.unwrap(), "{level}, {strict}");
        run(&mut service, "COMMIT").await;
        assert_eq!(fixture.find(1).await.state, State::Done);
    }
}

#[tokio::test]
async fn a_renewed_claim_is_not_swept_and_takes_nobodys_place() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.insert_all(due_rows(1..=4)).await.unwrap();
    store.ready(&brief(9)).await.unwrap();
    let claims: Vec<_> = (1..=4).map(|number| held(id(number), 2)).collect();
    assert_eq!(store.renew(&claims, LEASE).await.unwrap(), [Guarded::Done; 4]);
    store.insert_all(due_rows([5])).await.unwrap();
    store.ready(&brief(9)).await.unwrap();
    let narrow = Sweep { limit: 1, ..sweep() };
    assert_eq!(store.sweep(&claim(0), &narrow).await.unwrap().found.expired, 1);
    assert_eq!(fixture.find(5).await.state, State::Scheduled);
    assert_eq!(fixture.find(1).await.state, State::Running);
}

#[tokio::test]
async fn a_verb_that_sees_an_older_lease_does_not_end_the_renewed_one_nor_lock_its_row() {
    for (level, strict) in cases() {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        store.insert_all(due_rows([1])).await.unwrap();
        store.ready(&brief(1)).await.unwrap();
        let mut service = begun(&fixture, level, strict).await;
        assert_eq!(
            store.renew(&[held(id(1), 2)], LEASE).await.unwrap(),
            [Guarded::Done]
        );
        let cancel = vec![change(id(1), Verb::Cancel)];
        let answers = in_time(store.join(&mut service).change(cancel))
            .await
            .unwrap()
            .found;
        assert!(
            matches!(answers[0], Answer::TooLate(_)),
            "{level}, {strict}: {answers:?}"
        );
        let renewed = in_time(store.renew(&[held(id(1), 2)], LEASE)).await.unwrap();
        assert_eq!(renewed, [Guarded::Done], "{level}, {strict}");
        run(&mut service, "COMMIT").await;
    }
}

#[tokio::test]
async fn of_a_verb_that_ends_a_lease_and_a_renewal_one_wins() {
    for (level, strict) in cases() {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        store.insert_all(due_rows([1])).await.unwrap();
        store.ready(&brief(1)).await.unwrap();
        let mut service = begun(&fixture, level, strict).await;
        let cancel = vec![change(id(1), Verb::Cancel)];
        let answers = in_time(store.join(&mut service).change(cancel))
            .await
            .unwrap()
            .found;
        assert!(answers[0].is_done(), "{level}, {strict}: {answers:?}");
        let renewed = in_time(store.renew(&[held(id(1), 2)], LEASE)).await.unwrap();
        assert_eq!(renewed, [Guarded::Blocked], "{level}, {strict}");
        run(&mut service, "COMMIT").await;
        let renewed = store.renew(&[held(id(1), 2)], LEASE).await.unwrap();
        assert_eq!(renewed, [Guarded::Lost], "{level}, {strict}");
        assert_eq!(fixture.find(1).await.version, 4);
    }
}

#[tokio::test]
async fn leases_that_were_given_while_the_clock_was_ahead_are_mended() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.insert_all(due_rows([1, 2])).await.unwrap();
    store.ready(&claim(9)).await.unwrap();
    store.renew(&[held(id(2), 2)], LEASE).await.unwrap();
    let mut other = fixture.foreign().await;
    for later in [
        format!("UPDATE delayline_tasks SET updated_at = updated_at + {HOUR}, wake_at = wake_at + {HOUR}"),
        format!("UPDATE delayline_tasks_leases SET until = until + {HOUR}, renewed_at = renewed_at + {HOUR}"),
    ] {
        run(&mut other, &later).await;
    }
    store.purge(9).await.unwrap();
    let now = store.now().await.unwrap();
    for number in [1, 2] {
        let row = fixture.find(number).await;
        assert!(row.updated_at <= now, "{row:?}");
        assert!(
            row.wake_at
                .is_some_and(|end| end > now && end <= now.after(LEASE)),
            "{row:?}"
        );
    }
}

#[tokio::test]
async fn what_is_left_of_renewals_is_removed() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.insert_all(due_rows([1, 2, 3])).await.unwrap();
    store.ready(&claim(9)).await.unwrap();
    let claims = [1, 2, 3].map(|number| held(id(number), 2));
    store.renew(&claims, LEASE).await.unwrap();
    let mut other = fixture.foreign().await;
    let left = async |other: &mut _| -> i64 {
        let count = sqlx::query_scalar("SELECT count(*) FROM delayline_tasks_leases");
        count.fetch_one(other).await.unwrap()
    };
    store.advance(&[settlement(1, 2, Ending::Done)]).await.unwrap();
    assert_eq!(left(&mut other).await, 2);
    // A service's transaction may not be able to remove it.
    run(&mut other, "START TRANSACTION").await;
    assert!(
        store
            .join(&mut other)
            .finish(id(2), 2, Note::default())
            .await
            .unwrap()
    );
    run(&mut other, "COMMIT").await;
    run(&mut other, "UPDATE delayline_tasks_leases SET until = 0").await;
    store.purge(1).await.unwrap();
    // The third still runs: its lease has only ended.
    assert_eq!(left(&mut other).await, 1);
    assert_eq!(store.sweep(&claim(0), &sweep()).await.unwrap().found.expired, 1);
    assert_eq!(left(&mut other).await, 0);
    assert_eq!(fixture.find(3).await.attempt, 0);
}
