//! What another transaction has locked holds up nothing that has nothing to do with it, in any database with locks on rows.

use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::task::JoinSet;

use super::each::Each;
use super::rows::{LEASE, cancel, claim, done, held, id, in_time, named, new_row};
use crate::store::{Guarded, NewRow, Step, Store};
use crate::{NewTask, Scheduled, Scheduler};

/// A database of a test's own, in which other transactions lock rows.
#[async_trait]
pub(in crate::store) trait Locking: Sized + Send + Sync {
    type Store: Store + Clone + 'static;
    type Connection: Send;

    async fn empty() -> Self;

    fn store(&self) -> &Self::Store;

    /// A store in the same table that has one connection.
    async fn with_one_connection(&self) -> Self::Store;

    /// Begins another transaction, which locks the rows of these ids.
    async fn locking(&self, numbers: &[usize]) -> Self::Connection;

    /// Begins another transaction, which inserts a row.
    async fn inserting(&self, row: NewRow) -> Self::Connection;

    /// Ends the transaction by `COMMIT` or `ROLLBACK`.
    async fn end(other: &mut Self::Connection, how: &'static str);

    /// Waits until no call waits for a lock.
    async fn until_none_waits(&self);
}

/// Tests of a database that is [`Locking`].
macro_rules! locked_rows {
    ($locking:ty: $($name:ident),*) => {
        $(#[tokio::test]
        async fn $name() {
            $crate::store::sql::tests::locked::$name::<$locking>().await;
        })*
    };
    ($locking:ty) => {
        $crate::store::sql::tests::locked::locked_rows!($locking:
            a_locked_row_has_an_error_of_its_own_and_the_others_are_changed,
            a_key_that_is_being_written_has_an_error_of_its_own_and_the_others_are_written,
            callers_that_want_no_locked_row_are_answered,
            an_insert_that_only_finds_a_locked_row_does_not_wait_for_it,
            calls_that_wait_for_a_row_keep_no_connection_from_others,
            a_locked_row_blocks_its_own_end_and_hop_alone);
    };
}

pub(in crate::store) use locked_rows;

fn rows(numbers: std::ops::RangeInclusive<usize>) -> Vec<NewRow> {
    numbers.map(|number| new_row(number, LEASE)).collect()
}

pub(in crate::store) async fn a_locked_row_has_an_error_of_its_own_and_the_others_are_changed<D: Locking>() {
    let database = D::empty().await;
    let store = database.store();
    store.insert_all(rows(1..=40)).await.unwrap();
    let mut other = database.locking(&[7]).await;
    let changes = (1..=40).map(|number| cancel(id(number))).collect();
    for (number, answer) in (1..).zip(in_time(store.change(changes)).await.unwrap().found) {
        match answer {
            Err(error) => {
                assert_eq!(number, 7, "{error}");
                assert!(
                    error.is_transient() && error.to_string().contains("locked"),
                    "{error}"
                );
            }
            Ok(answer) => assert!(answer.is_done() && number != 7, "{answer:?}"),
        }
    }
    D::end(&mut other, "COMMIT").await;
    assert!(store.change_all(vec![cancel(id(7))]).await.unwrap().found[0].is_done());
}

pub(in crate::store) async fn a_key_that_is_being_written_has_an_error_of_its_own_and_the_others_are_written<
    D: Locking,
>() {
    let database = D::empty().await;
    let store = database.store();
    let mut other = database.inserting(named(100, "7")).await;
    let row = |number: usize| named(number, &number.to_string());
    let found = in_time(store.insert((1..=40).map(row).collect()))
        .await
        .unwrap()
        .found;
    for (number, answer) in (1..).zip(found) {
        match answer {
            Err(error) => assert!(number == 7 && error.is_transient(), "{number}: {error}"),
            Ok(answer) => assert!(matches!(answer, Scheduled::New(_)) && number != 7, "{answer:?}"),
        }
    }
    D::end(&mut other, "COMMIT").await;
    let found = store.insert_all(vec![row(7)]).await.unwrap().found;
    assert!(
        matches!(&found[0], Scheduled::Existing(task) if task.id == id(100)),
        "{found:?}"
    );
}

/// Callers that come at once share calls of the store, and one of them wants what another transaction keeps.
pub(in crate::store) async fn callers_that_want_no_locked_row_are_answered<D: Locking>() {
    let database = D::empty().await;
    let mut other = database.inserting(named(100, "7")).await;
    let scheduler = Scheduler::new(database.store().clone());
    let mut callers = JoinSet::new();
    for number in 0..40_usize {
        let scheduler = scheduler.clone();
        let task = NewTask::new("k", &number).key(number.to_string()).after(LEASE);
        callers.spawn(async move { (number, scheduler.schedule(task).await) });
    }
    let start = Instant::now();
    for _ in 0..39 {
        let (number, scheduled) = in_time(callers.join_next()).await.unwrap().unwrap();
        assert!(
            number != 7 && matches!(scheduled, Ok(Scheduled::New(_))),
            "{number}: {scheduled:?}"
        );
    }
    D::end(&mut other, "COMMIT").await;
    let (number, scheduled) = in_time(callers.join_next()).await.unwrap().unwrap();
    // It waits for three seconds, so the others were answered before: unless this machine stood still meanwhile.
    let stood_still = start.elapsed() >= Duration::from_secs(3);
    assert!(
        number == 7 && (stood_still || matches!(scheduled, Ok(Scheduled::Existing(_)))),
        "{number}: {scheduled:?}"
    );
}

pub(in crate::store) async fn an_insert_that_only_finds_a_locked_row_does_not_wait_for_it<D: Locking>() {
    let database = D::empty().await;
    let store = database.store();
    store.insert_all(vec![named(1, "a")]).await.unwrap();
    let _other = database.locking(&[1]).await;
    let found = in_time(store.insert_all(vec![named(2, "a"), new_row(1, LEASE), new_row(3, LEASE)]));
    let found = found.await.unwrap().found;
    assert!(
        matches!(
            found.as_slice(),
            [Scheduled::Existing(_), Scheduled::Existing(_), Scheduled::New(_)]
        ),
        "{found:?}"
    );
}

pub(in crate::store) async fn calls_that_wait_for_a_row_keep_no_connection_from_others<D: Locking>() {
    let database = D::empty().await;
    let store = database.with_one_connection().await;
    store.insert_all(rows(1..=2)).await.unwrap();
    store
        .insert_all(vec![new_row(3, Duration::ZERO), new_row(4, Duration::ZERO)])
        .await
        .unwrap();
    assert_eq!(store.ready(&claim(2)).await.unwrap().found.len(), 2);
    let mut other = database.locking(&[1]).await;
    let waiting: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move { store.change(vec![cancel(id(1))]).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(100)).await;
    in_time(async {
        assert_eq!(
            store.renew(&[held(id(3), 2)], LEASE).await.unwrap(),
            [Guarded::Done]
        );
        assert_eq!(store.advance(&[done(4, 2)]).await.unwrap(), [Guarded::Done]);
        store.insert_all(rows(5..=5)).await.unwrap();
        let cancel = vec![cancel(id(2))];
        assert!(store.change_all(cancel).await.unwrap().found[0].is_done());
    })
    .await;
    assert!(waiting.iter().any(|waiting| !waiting.is_finished()));
    // A wait ends with its caller.
    waiting.iter().for_each(|waiting| waiting.abort());
    in_time(database.until_none_waits()).await;
    D::end(&mut other, "COMMIT").await;
    let cancel = vec![cancel(id(1))];
    assert!(in_time(store.change_all(cancel)).await.unwrap().found[0].is_done());
}

pub(in crate::store) async fn a_locked_row_blocks_its_own_end_and_hop_alone<D: Locking>() {
    let database = D::empty().await;
    let store = database.store();
    store
        .insert_all((1..=3).map(|number| new_row(number, Duration::ZERO)).collect())
        .await
        .unwrap();
    store.ready(&claim(9)).await.unwrap();
    store.insert_all(rows(4..=5)).await.unwrap();
    let mut other = database.locking(&[1, 3, 4]).await;
    use Guarded::{Blocked, Done, Lost};
    let ends = [done(1, 2), done(2, 2), done(3, 1)];
    let settled = store.advance(&ends);
    assert_eq!(in_time(settled).await.unwrap(), [Blocked, Done, Lost]);
    let hop = |number| Step::hop(id(number), 1, LEASE);
    let hops = [hop(4), hop(5), hop(1)];
    assert_eq!(
        in_time(store.advance(&hops)).await.unwrap(),
        [Blocked, Done, Lost]
    );
    D::end(&mut other, "ROLLBACK").await;
    assert_eq!(store.advance(&[done(1, 2)]).await.unwrap(), [Done]);
    assert_eq!(store.advance(&hops[..1]).await.unwrap(), [Done]);
}
