//! Renewals, and the calls that meet them.

use std::time::Duration;

use sqlx::MySqlConnection;

use super::{Fixture, LEASE, LEVELS, change, claim, due_rows, held, id, in_time, run};
use crate::store::sql::tests::each::Each;
use crate::store::{Claim, Guarded, Note, Renewal, Store, Sweep, Transaction, Verb};
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
async fn a_claim_that_was_renewed_meanwhile_is_finished_or_its_transaction_repeated() {
    for (level, strict) in cases() {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        store.insert_all(due_rows([1])).await.unwrap();
        store.ready(&claim(1)).await.unwrap();
        let mut service = begun(&fixture, level, strict).await;
        // What it sees of the row is old by then.
        for started in [true, false] {
            let renewal = Renewal {
                started,
                ..held(id(1), 2)
            };
            assert_eq!(store.renew(&[renewal], LEASE).await.unwrap(), [Guarded::Done]);
        }
        assert!(fixture.find(1).await.started);
        let finish = async |service: &mut MySqlConnection| {
            in_time(store.join(service).finish(id(1), 2, Note::default())).await
        };
        let finished = match finish(&mut service).await {
            Ok(finished) => finished,
            Err(error) => {
                assert!(
                    strict && level == LEVELS[1] && error.is_transient(),
                    "{level}: {error}"
                );
                run(&mut service, "ROLLBACK").await;
                run(&mut service, "START TRANSACTION").await;
                finish(&mut service).await.unwrap()
            }
        };
        assert!(finished, "{level}, {strict}");
        run(&mut service, "COMMIT").await;
        assert_eq!(fixture.find(1).await.state, State::Done);
    }
}

#[tokio::test]
async fn a_renewed_claim_is_not_swept_and_takes_no_place_from_others() {
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
    let later =
        format!("UPDATE delayline_tasks SET updated_at = updated_at + {HOUR}, wake_at = wake_at + {HOUR}");
    run(&mut fixture.foreign().await, &later).await;
    store.purge(9).await.unwrap();
    let now = store.now().await.unwrap();
    for number in [1, 2] {
        let row = fixture.find(number).await;
        assert!(row.updated_at <= now, "{row:?}");
        assert!(
            row.wake_at
                .is_some_and(|end| end > now && end <= now.after(LEASE + Duration::from_secs(5))),
            "{row:?}"
        );
    }
}
