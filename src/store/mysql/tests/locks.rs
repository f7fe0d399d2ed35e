//! Rows that another connection has locked, and transactions that cross.

use std::time::Duration;

use sqlx::{Executor, MySqlConnection, Row};
use tokio::sync::Mutex;

use super::{
    Fixture, LEASE, change, claim, due_rows, held, id, in_time, is, named, new_row, run, settlement, wakes,
};
use crate::store::sql::tests::each::Each;
use crate::store::{Ahead, Ending, Guarded, PollResult, Store, Sweep, Verb};
use crate::{Answer, Scheduled, State, Task};

/// Locks rows until the connection's transaction ends.
pub(super) async fn lock(other: &mut MySqlConnection, which: &str) {
    run(other, "START TRANSACTION").await;
    run(
        other,
        &format!("SELECT * FROM delayline_tasks WHERE {which} FOR UPDATE"),
    )
    .await;
}

/// Waits until none does.
pub(super) async fn no_session_waits(other: &mut MySqlConnection) {
    waiting(other).await;
}

/// The server looks anew only when no test has asked for 0.1 s, or says what it has said: so one test asks after the
/// other, or together they would never let it look.
static ASKING: Mutex<()> = Mutex::const_new(());

async fn waiting(other: &mut MySqlConnection) {
    loop {
        let asking = ASKING.lock().await;
        tokio::time::sleep(Duration::from_millis(150)).await;
        let waiting = "SELECT COUNT(*) FROM information_schema.INNODB_TRX t
            JOIN /*M! information_schema.PROCESSLIST */ /*!80022 performance_schema.processlist */ p
                ON p.ID = t.trx_mysql_thread_id
            WHERE t.trx_state = 'LOCK WAIT' AND p.DB = DATABASE()";
        let count = sqlx::query_scalar::<_, i64>(waiting).fetch_one(&mut *other).await;
        drop(asking);
        match count {
            Ok(0) => return,
            Ok(_) => {}
            // MySQL tells of none while one of them, of any database, executes a text with bytes of a payload in it.
            Err(error) => assert!(error.to_string().contains("Cannot convert string"), "{error}"),
        }
    }
}

fn sweep() -> Sweep {
    let ahead = Ahead {
        within: LEASE,
        limit: 100,
    };
    Sweep {
        limit: 100,
        retake: LEASE,
        ahead: Some(ahead),
    }
}

#[tokio::test]
async fn a_locked_row_is_left_to_others_and_no_call_waits() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    fixture.insert(due_rows([1, 2])).await;
    let mut other = fixture.foreign().await;
    lock(&mut other, &is(1)).await;
    in_time(async {
        let polled = store.arrive(&wakes([1]), &claim(9)).await.unwrap().found;
        assert_eq!(polled, PollResult::default());
        // The other one has to wait for the room that this one was to have.
        let swept = store.sweep(&claim(1), &sweep()).await.unwrap().found;
        assert_eq!((swept.claimed, swept.waiting.len()), (vec![], 1));
        let ready = store.ready(&claim(1)).await.unwrap().found;
        assert_eq!(ready, [fixture.find(2).await]);
    })
    .await;
    run(&mut other, "ROLLBACK").await;
    let swept = store.sweep(&claim(1), &sweep()).await.unwrap().found;
    assert_eq!(swept.claimed, [fixture.find(1).await]);
}

#[tokio::test]
async fn a_sweep_leaves_ended_leases_and_lost_wakes_that_are_locked() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    fixture.running(1..3).await;
    let lost = |number| crate::store::NewRow {
        overdue_after: Duration::ZERO,
        ..new_row(number, LEASE)
    };
    fixture.insert(vec![lost(3), lost(4)]).await;
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "UPDATE delayline_tasks SET wake_at = 0 WHERE state = 1",
    )
    .await;
    lock(&mut other, &format!("{} OR {}", is(1), is(3))).await;
    let swept = in_time(store.sweep(&claim(9), &sweep())).await.unwrap().found;
    assert_eq!(
        (swept.expired, swept.claimed, swept.early.len()),
        (1, vec![fixture.find(2).await], 1)
    );
    assert_eq!(swept.early[0].wake.id, id(4));
    assert_eq!(fixture.find(1).await.state, State::Running);
}

#[tokio::test]
async fn a_renewal_of_a_locked_row_says_so() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    fixture.running(1..4).await;
    store.advance(&[settlement(3, 2, Ending::Done)]).await.unwrap();
    let before = fixture.find(1).await;
    let mut other = fixture.foreign().await;
    lock(&mut other, &format!("{} OR {}", is(1), is(3))).await;
    let claims = [(1, 2), (2, 2), (3, 2), (1, 1), (9, 1)].map(|(number, version)| held(id(number), version));
    let renewed = in_time(store.renew(&claims, 2 * LEASE)).await.unwrap();
    use Guarded::{Blocked, Done, Lost};
    assert_eq!(renewed, [Blocked, Done, Lost, Lost, Lost]);
    assert_eq!(fixture.find(1).await, before);
    assert!(fixture.find(2).await.wake_at > before.wake_at);
}

#[tokio::test]
async fn a_purge_leaves_what_is_locked() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1, 2])).await;
    let cancel = |number| change(id(number), Verb::Cancel);
    fixture
        .store
        .change_all(vec![cancel(1), cancel(2)])
        .await
        .unwrap();
    let mut other = fixture.foreign().await;
    run(&mut other, "UPDATE delayline_tasks SET wake_at = 0").await;
    lock(&mut other, &is(1)).await;
    assert_eq!(in_time(fixture.store.purge(10)).await.unwrap(), 1);
    assert_eq!(fixture.find(1).await.state, State::Cancelled);
    run(&mut other, "ROLLBACK").await;
    assert_eq!(fixture.store.purge(10).await.unwrap(), 1);
}

#[tokio::test]
async fn a_change_waits_for_a_lock_and_decides_by_what_it_finds_then() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1])).await;
    let mut other = fixture.foreign().await;
    lock(&mut other, &is(1)).await;
    let store = fixture.store.clone();
    let cancelled = tokio::spawn(async move { store.change_all(vec![change(id(1), Verb::Cancel)]).await });
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!cancelled.is_finished());
    run(
        &mut other,
        &format!(
            "UPDATE delayline_tasks SET state = 2, version = 2 WHERE {}",
            is(1)
        ),
    )
    .await;
    run(&mut other, "COMMIT").await;
    let answers = in_time(cancelled).await.unwrap().unwrap().found;
    assert_eq!(answers, [Answer::Finished(fixture.find(1).await)]);
}

#[tokio::test]
async fn verbs_do_not_wait_for_a_running_row_that_is_locked() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    fixture.insert(vec![named(1, "a")]).await;
    store.arrive(&wakes([1]), &claim(1)).await.unwrap();
    let row = fixture.find(1).await;
    let mut other = fixture.foreign().await;
    lock(&mut other, &is(1)).await;
    in_time(async {
        let cancel = |target: crate::store::Target| vec![change(target, Verb::Cancel)];
        for target in [id(1).into(), ("k", "a").into()] {
            let answers = store.change_all(cancel(target)).await.unwrap().found;
            assert_eq!(answers, [Answer::TooLate(row.clone())]);
        }
        let found = store.insert_all(vec![named(2, "a")]).await.unwrap().found;
        assert_eq!(found, [Scheduled::Running(row.clone())]);
    })
    .await;
}

#[tokio::test]
async fn a_transaction_that_is_waited_for_never_waits_in_turn() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1, 2])).await;
    let mut other = fixture.foreign().await;
    lock(&mut other, &is(2)).await;
    let store = fixture.store.clone();
    let cancel = [1, 2].map(|number| change(id(number), Verb::Cancel));
    let cancelled = tokio::spawn(async move { store.change_all(cancel.to_vec()).await });
    // The first is cancelled and free, while the second is asked for again.
    while fixture.find(1).await.state != State::Cancelled {
        tokio::task::yield_now().await;
    }
    let cross = format!("SELECT id FROM delayline_tasks WHERE {} FOR UPDATE NOWAIT", is(1));
    in_time(run(&mut other, &cross)).await;
    run(&mut other, "COMMIT").await;
    let answers = in_time(cancelled).await.unwrap().unwrap().found;
    assert!(answers.iter().all(Answer::is_done));
}

#[tokio::test]
async fn a_call_that_writes_nothing_begins_no_transaction() {
    let fixture = Fixture::new().await;
    let builder = super::MySqlStore::builder(fixture.url.parse().unwrap());
    let store = builder.connections(1).connect().await.unwrap();
    fixture.insert(vec![new_row(1, LEASE)]).await;
    store.sweep(&claim(9), &sweep()).await.unwrap();
    let before = questions(&store).await;
    let swept = store.sweep(&claim(9), &sweep()).await.unwrap().found;
    assert_eq!(swept.ahead.len(), 1);
    let polled = store.arrive(&wakes([1, 3]), &claim(9)).await.unwrap().found;
    assert_eq!((polled.early.len(), polled.stale), (1, 1));
    let after = questions(&store).await;
    // One for the sweep; and one that looks for what is due, and one for what the others are.
    assert_eq!(after - before, 3);
}

/// How many statements a store of one connection has executed.
async fn questions(store: &super::MySqlStore) -> u64 {
    let mut lent = store.server.pools.workers.lend().await.unwrap();
    let row = lent
        .fetch_one("SHOW SESSION STATUS LIKE 'Com_stmt_execute'")
        .await
        .unwrap();
    lent.give_back();
    row.get::<String, _>(1).parse().unwrap()
}

#[tokio::test]
async fn a_call_that_is_abandoned_holds_up_no_other() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1, 2])).await;
    let mut other = fixture.foreign().await;
    lock(&mut other, &is(2)).await;
    let store = fixture.store.clone();
    let cancel = |number| change(id(number), Verb::Cancel);
    let changes = vec![cancel(1), cancel(2)];
    let abandoned = tokio::spawn(async move { store.change_all(changes).await });
    tokio::time::sleep(Duration::from_millis(100)).await;
    abandoned.abort();
    run(&mut other, "ROLLBACK").await;
    let answers = in_time(fixture.store.change_all(vec![cancel(1)]))
        .await
        .unwrap()
        .found;
    let task: Option<&Task> = answers[0].task();
    assert_eq!(task.map(|task| task.state), Some(State::Cancelled));
}
