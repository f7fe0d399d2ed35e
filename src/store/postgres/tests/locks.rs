//! Rows that another connection has locked, and calls that the database gives up.

use std::time::Duration;

use super::{
    Fixture, LEASE, change, claim, done, due_rows, held, id, in_time, lock, new_row, run, sweep, wakes,
};
use crate::store::sql::tests::each::Each;
use crate::store::{Ahead, Guarded, PollResult, Store, Sweep, Transaction, Verb};
use crate::{Answer, State};

#[tokio::test]
async fn a_locked_row_is_neither_claimed_nor_stale_nor_waiting() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.insert_all(due_rows([1, 2, 3])).await.unwrap();
    store.insert_all(vec![new_row(4, LEASE)]).await.unwrap();
    let mut other = fixture.foreign().await;
    lock(&mut other, &[1, 3, 4]).await;
    in_time(async {
        let polled = store.arrive(&wakes([1, 2]), &claim(9)).await.unwrap().found;
        assert_eq!(polled.claimed.len(), 1);
        assert_eq!((polled.stale, polled.waiting.len()), (0, 0));
        let polled = store.arrive(&wakes([1, 3]), &claim(9)).await.unwrap().found;
        assert_eq!(polled, PollResult::default());
        let polled = store.arrive(&wakes([1, 2]), &claim(9)).await.unwrap().found;
        assert_eq!((polled.stale, polled.claimed.len()), (1, 0));
        assert_eq!(store.ready(&claim(9)).await.unwrap().found, []);
        let swept = store.sweep(&claim(9), &sweep()).await.unwrap().found;
        assert_eq!(swept, PollResult::default());
        let ahead = Ahead {
            within: 2 * LEASE,
            limit: 9,
        };
        // Also of those that have just become due.
        let sweep = Sweep {
            ahead: Some(ahead),
            ..sweep()
        };
        let coming = store.sweep(&claim(9), &sweep).await.unwrap().found.ahead;
        assert!(coming.iter().any(|row| row.wake.id == id(4)));
    })
    .await;
    run(&mut other, "COMMIT").await;
    let swept = store.sweep(&claim(9), &sweep()).await.unwrap().found;
    assert_eq!(swept.claimed.len(), 2);
}

#[tokio::test]
async fn room_that_a_locked_row_does_not_take_is_left_to_others() {
    let fixture = Fixture::new().await;
    fixture.store.insert_all(due_rows([1, 2])).await.unwrap();
    let mut other = fixture.foreign().await;
    lock(&mut other, &[1]).await;
    let found = fixture
        .store
        .arrive(&wakes([1, 2]), &claim(1))
        .await
        .unwrap()
        .found;
    assert_eq!(found.claimed.len(), 1);
    fixture.store.insert_all(due_rows([3])).await.unwrap();
    let found = in_time(fixture.store.ready(&claim(1))).await.unwrap().found;
    assert_eq!(found[0].id, id(3));
}

#[tokio::test]
async fn a_locked_claim_is_not_renewed_and_not_lost() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.insert_all(due_rows([1, 2, 3])).await.unwrap();
    store.ready(&claim(9)).await.unwrap();
    let mut other = fixture.foreign().await;
    lock(&mut other, &[1, 3]).await;
    let claims = [(1, 2), (2, 2), (3, 1), (4, 2)].map(|(number, version)| held(id(number), version));
    let renewed = in_time(store.renew(&claims, LEASE)).await.unwrap();
    let expected = [Guarded::Blocked, Guarded::Done, Guarded::Lost, Guarded::Lost];
    assert_eq!(renewed, expected);
}

#[tokio::test]
async fn a_locked_lease_that_has_ended_is_left_and_so_is_locked_history() {
    let fixture = Fixture::new().await;
    let store = fixture
        .builder()
        .keep_history(Duration::ZERO)
        .connect()
        .await
        .unwrap();
    store.insert_all(due_rows([1, 2])).await.unwrap();
    let brief = crate::store::Claim {
        lease: Duration::ZERO,
        ..claim(9)
    };
    store.ready(&brief).await.unwrap();
    assert_eq!(store.advance(&[done(2, 2)]).await.unwrap(), [Guarded::Done]);
    let mut other = fixture.foreign().await;
    lock(&mut other, &[1, 2]).await;
    in_time(async {
        let swept = store.sweep(&claim(9), &sweep()).await.unwrap().found;
        assert_eq!(swept, PollResult::default());
        assert_eq!(store.purge(9).await.unwrap(), 0);
    })
    .await;
    run(&mut other, "COMMIT").await;
    assert_eq!(store.sweep(&claim(9), &sweep()).await.unwrap().found.expired, 1);
    assert_eq!(store.purge(9).await.unwrap(), 1);
}

#[tokio::test]
async fn a_verb_waits_for_a_scheduled_row_and_decides_on_what_it_has_become() {
    let fixture = Fixture::new().await;
    fixture.store.insert_all(due_rows([1])).await.unwrap();
    let mut other = fixture.foreign().await;
    lock(&mut other, &[1]).await;
    run(
        &mut other,
        "UPDATE delayline_tasks SET state = 1, version = 2, wake_at = 4000000000000",
    )
    .await;
    let store = fixture.store.clone();
    let cancel = tokio::spawn(async move { store.change_all(vec![change(id(1), Verb::Cancel)]).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!cancel.is_finished());
    run(&mut other, "COMMIT").await;
    let answers = in_time(cancel).await.unwrap().unwrap().found;
    let [Answer::TooLate(task)] = answers.as_slice() else {
        panic!("{answers:?}");
    };
    assert_eq!(task.version, 2);
}

#[tokio::test]
async fn a_verb_neither_waits_for_a_running_row_nor_locks_it() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    let mut row = due_rows([1]).remove(0);
    row.key = Some("a".into());
    store.insert_all(vec![row.clone()]).await.unwrap();
    store.ready(&claim(9)).await.unwrap();

    let mut service = fixture.foreign().await;
    run(&mut service, "BEGIN").await;
    let mut joined = store.join(&mut service);
    let cancel = || vec![change(id(1), Verb::Cancel), change(("k", "a"), Verb::Cancel)];
    let answers = joined.change(cancel()).await.unwrap().found;
    assert!(answers.iter().all(|answer| matches!(answer, Answer::TooLate(_))));
    row.id = id(2);
    joined.insert(vec![row]).await.unwrap();
    drop(joined);
    let renewed = in_time(store.renew(&[held(id(1), 2)], LEASE)).await.unwrap();
    assert_eq!(renewed, [Guarded::Done]);
    run(&mut service, "COMMIT").await;

    lock(&mut service, &[1]).await;
    let answers = in_time(store.change_all(cancel())).await.unwrap().found;
    assert!(answers.iter().all(|answer| matches!(answer, Answer::TooLate(_))));
}

#[tokio::test]
async fn a_transaction_that_is_waited_for_never_waits_in_turn() {
    let fixture = Fixture::new().await;
    fixture.store.insert_all(due_rows([1, 2])).await.unwrap();
    let mut other = fixture.foreign().await;
    lock(&mut other, &[2]).await;
    let store = fixture.store.clone();
    let cancel = [1, 2].map(|number| change(id(number), Verb::Cancel));
    let cancel = tokio::spawn(async move { store.change_all(cancel.to_vec()).await });
    // The first is cancelled and free, while the second is asked for again.
    while fixture.find(id(1)).await.state != State::Cancelled {
        tokio::task::yield_now().await;
    }
    in_time(run(
        &mut other,
        "SELECT 1 FROM delayline_tasks WHERE id = '00000000-0000-0000-0000-000000000001' FOR UPDATE NOWAIT; COMMIT",
    ))
    .await;
    let answers = in_time(cancel).await.unwrap().unwrap().found;
    assert!(answers.iter().all(Answer::is_done));
}
