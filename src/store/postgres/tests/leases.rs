//! Renewals, and the calls that meet them.

use std::time::Duration;

use super::{Fixture, LEASE, change, claim, due_rows, held, id, in_time, run, sweep};
use crate::store::sql::tests::each::Each;
use crate::store::{Claim, Guarded, Note, Renewal, Store, Sweep, Transaction, Verb};
use crate::{Answer, State};

const HOUR: i64 = 3_600_000;
const LEVELS: [&str; 3] = ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"];

/// A claim whose lease has ended.
fn brief(room: usize) -> Claim {
    Claim {
        lease: Duration::ZERO,
        ..claim(room)
    }
}

async fn begin(service: &mut sqlx::PgConnection, level: &str) {
    run(
        service,
        &format!("BEGIN ISOLATION LEVEL {level}; SELECT count(*) FROM delayline_tasks"),
    )
    .await;
}

#[tokio::test]
async fn a_claim_that_was_renewed_meanwhile_is_finished_or_its_transaction_repeated() {
    for level in LEVELS {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        store.insert_all(due_rows([1])).await.unwrap();
        store.ready(&claim(1)).await.unwrap();
        let mut service = fixture.foreign().await;
        begin(&mut service, level).await;
        // What it sees of the row is old by then.
        for started in [true, false] {
            let renewal = Renewal {
                started,
                ..held(id(1), 2)
            };
            assert_eq!(store.renew(&[renewal], LEASE).await.unwrap(), [Guarded::Done]);
        }
        assert!(fixture.find(id(1)).await.started);
        let finish = async |service: &mut sqlx::PgConnection| {
            in_time(store.join(service).finish(id(1), 2, Note::default())).await
        };
        if level != LEVELS[0] {
            let error = finish(&mut service).await.unwrap_err();
            assert!(error.is_transient(), "{level}: {error}");
            run(&mut service, "ROLLBACK").await;
            begin(&mut service, level).await;
        }
        assert!(finish(&mut service).await.unwrap(), "{level}");
        run(&mut service, "COMMIT").await;
        assert_eq!(fixture.find(id(1)).await.state, State::Done);
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
    assert_eq!(fixture.find(id(5)).await.state, State::Scheduled);
    assert_eq!(fixture.find(id(1)).await.state, State::Running);
}

#[tokio::test]
async fn a_verb_that_sees_an_older_lease_does_not_end_the_renewed_one_nor_lock_its_row() {
    for level in LEVELS {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        store.insert_all(due_rows([1])).await.unwrap();
        store.ready(&brief(1)).await.unwrap();
        let mut service = fixture.foreign().await;
        begin(&mut service, level).await;
        assert_eq!(
            store.renew(&[held(id(1), 2)], LEASE).await.unwrap(),
            [Guarded::Done]
        );
        let cancel = vec![change(id(1), Verb::Cancel)];
        let answers = in_time(store.join(&mut service).change(cancel)).await;
        match answers {
            Ok(answers) => {
                assert_eq!(level, LEVELS[0]);
                assert!(
                    matches!(answers.found[0], Answer::TooLate(_)),
                    "{level}: {answers:?}"
                );
            }
            Err(error) => assert!(level != LEVELS[0] && error.is_transient(), "{level}: {error}"),
        }
        let renewed = in_time(store.renew(&[held(id(1), 2)], LEASE)).await.unwrap();
        assert_eq!(renewed, [Guarded::Done], "{level}");
        run(&mut service, "COMMIT").await;
    }
}

#[tokio::test]
async fn of_a_verb_that_ends_a_lease_and_a_renewal_one_wins() {
    for level in LEVELS {
        let fixture = Fixture::new().await;
        let store = &fixture.store;
        store.insert_all(due_rows([1])).await.unwrap();
        store.ready(&brief(1)).await.unwrap();
        let mut service = fixture.foreign().await;
        begin(&mut service, level).await;
        let cancel = vec![change(id(1), Verb::Cancel)];
        let answers = in_time(store.join(&mut service).change(cancel))
            .await
            .unwrap()
            .found;
        assert!(answers[0].is_done(), "{level}: {answers:?}");
        let renewed = in_time(store.renew(&[held(id(1), 2)], LEASE)).await.unwrap();
        assert_eq!(renewed, [Guarded::Blocked], "{level}");
        run(&mut service, "COMMIT").await;
        let renewed = store.renew(&[held(id(1), 2)], LEASE).await.unwrap();
        assert_eq!(renewed, [Guarded::Lost], "{level}");
        assert_eq!(fixture.find(id(1)).await.version, 4);
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
        let row = fixture.find(id(number)).await;
        assert!(row.updated_at <= now, "{row:?}");
        assert!(
            row.wake_at
                .is_some_and(|end| end > now && end <= now.after(LEASE + Duration::from_secs(5))),
            "{row:?}"
        );
    }
}
