//! Many on one file, and calls that are abandoned.

use std::collections::BTreeSet;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;

use super::{Fixture, LEASE, claim, due_rows, each, id, in_time, new_row, run, wakes};
use crate::clock::Clock;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::connections::{failed, pool, write};
use crate::store::sqlite::presence::Presence;
use crate::store::sqlite::runner::Runner;
use crate::store::table::Which;
use crate::store::{Ahead, NewRow, Store, Sweep};
use crate::{Error, Kind, Scheduled, State};

/// Polls `future` up to `count` times, as it asks for it, and then drops it.
async fn abandon_after(count: usize, future: impl Future) -> bool {
    let mut future = pin!(future);
    let mut polls = 0;
    poll_fn(|context| {
        if polls == count {
            return Poll::Ready(false);
        }
        polls += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(_) => Poll::Ready(true),
            Poll::Pending if polls == count => Poll::Ready(false),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

#[tokio::test]
async fn two_stores_on_one_file_claim_each_row_once() {
    const ROWS: usize = 600;
    let fixture = Fixture::new().await;
    let other = SqliteStore::open(fixture.path()).await.unwrap();
    fixture.store.insert(due_rows(0..ROWS)).await.unwrap();
    let work = |store: SqliteStore| {
        tokio::spawn(async move {
            let mut claimed = Vec::new();
            for from in (0..ROWS).step_by(50) {
                let looked = store.arrive(&wakes(from..from + 50), &claim(20)).await?.found;
                claimed.extend(looked.claimed.iter().map(|task| task.id));
                let ready = store.ready(&claim(20)).await?.found;
                claimed.extend(ready.iter().map(|task| task.id));
            }
            Ok::<_, Error>(claimed)
        })
    };
    let workers = [
        work(fixture.store.clone()),
        work(other),
        work(fixture.store.clone()),
    ];
    let mut claimed = Vec::new();
    for worker in workers {
        claimed.extend(in_time(worker).await.unwrap().unwrap());
    }
    assert_eq!(claimed.len(), ROWS);
    assert_eq!(claimed.into_iter().collect::<BTreeSet<_>>().len(), ROWS);
}

/// Else a worker takes what is left to be nothing, and waits for a sweep.
#[tokio::test]
async fn what_others_claimed_since_a_look_is_made_up_for() {
    let Fixture { store, folder: _kept } = Fixture::new().await;
    store.insert(due_rows(0..25)).await.unwrap();
    let claim = claim(10);
    let mut reading = store.file.readers.lend().await.unwrap();
    let now = store.file.clock.now();
    let look = Runner::new(&mut reading, now).due(Which::Due, &claim).await;
    let look = look.unwrap();
    assert_eq!(look.rows.len(), 10);

    let quicker = store.ready(&claim).await.unwrap().found;
    let mut writing = store.file.write().await.unwrap();
    let mut runner = Runner::new(&mut writing, now);
    let slower = runner.claim(Which::Due, &claim, look).await.unwrap().rows;
    writing.commit().await.unwrap();
    assert_eq!((quicker.len(), slower.len()), (10, 10));
    let left = store.ready(&claim).await.unwrap().found;
    assert_eq!(left.len(), 5);
    let all = quicker.iter().chain(&slower).chain(&left);
    assert_eq!(all.map(|task| task.id).collect::<BTreeSet<_>>().len(), 25);
}

#[tokio::test]
async fn two_stores_on_one_file_write_one_live_row_for_each_key() {
    let fixture = Fixture::new().await;
    let other = SqliteStore::open(fixture.path()).await.unwrap();
    let work = |store: SqliteStore, from: usize| {
        tokio::spawn(async move {
            let mut new = 0;
            for round in 0..20 {
                let row = |key| NewRow {
                    key: Some(format!("{round}-{key}").into()),
                    ..new_row(from + round * 10 + key, LEASE)
                };
                let found = each(store.insert((0..10).map(row).collect()).await?.found);
                new += found
                    .iter()
                    .filter(|found| matches!(found, Scheduled::New(_)))
                    .count();
            }
            Ok::<_, Error>(new)
        })
    };
    let workers = [work(fixture.store.clone(), 0), work(other, 1_000)];
    let mut new = 0;
    for worker in workers {
        new += in_time(worker).await.unwrap().unwrap();
    }
    assert_eq!(new, 200);
}

#[tokio::test]
async fn an_abandoned_call_is_done_or_not_and_holds_up_no_other() {
    const ROWS: usize = 150;
    let fixture = Fixture::new().await;
    let mut finished = 0;
    for round in 0..60 {
        let numbers = round * ROWS..(round + 1) * ROWS;
        let rows = due_rows(numbers.clone());
        // One that is there makes the call take the longer way.
        fixture.store.insert(rows[..1].to_vec()).await.unwrap();
        let polls = round / 2 + 1;
        let waiting = fixture.store.insert(due_rows([1_000_000 + round]));
        let (insert, waited) = tokio::join!(abandon_after(polls, fixture.store.insert(rows)), waiting);
        waited.unwrap();

        let (wakes, claim) = (wakes(numbers.clone()), claim(ROWS));
        let arrive = fixture.store.arrive(&wakes, &claim);
        finished += usize::from(insert) + usize::from(abandon_after(polls, arrive).await);
        in_time(fixture.store.insert(due_rows([2_000_000 + round])))
            .await
            .unwrap();
        let mut found = Vec::new();
        for number in numbers.clone().skip(1) {
            found.push(
                fixture
                    .store
                    .find(&id(number).into())
                    .await
                    .unwrap()
                    .map(|task| task.state),
            );
        }
        found.dedup();
        assert_eq!(found.len(), 1, "{found:?} after {polls} polls");
    }
    assert!((1..120).contains(&finished), "{finished}");
}

#[tokio::test]
async fn a_lock_of_another_connection_is_waited_for() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(&mut other, "BEGIN IMMEDIATE").await;
    let store = fixture.store.clone();
    let insert = tokio::spawn(async move { store.insert(due_rows([1])).await });
    // When it has begun to wait cannot be told; that it has not finished is the point.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!insert.is_finished());
    run(&mut other, "COMMIT").await;
    in_time(insert).await.unwrap().unwrap();
}

#[tokio::test]
async fn what_has_changed_while_a_claim_waited_for_the_lock_is_not_claimed() {
    // It is of a later version, though due as before; or it has ended.
    for change in [
        "UPDATE delayline_tasks SET version = 2 WHERE id = unhex(printf('%032x', 2))",
        "UPDATE delayline_tasks SET version = 2, state = 4 WHERE id = unhex(printf('%032x', 2))",
    ] {
        let fixture = Fixture::new().await;
        fixture.insert(due_rows(1..=3)).await;
        let mut other = fixture.foreign().await;
        run(&mut other, "BEGIN IMMEDIATE").await;
        run(&mut other, change).await;
        let store = fixture.store.clone();
        let claiming = tokio::spawn(async move { store.arrive(&wakes(1..=3), &claim(9)).await });
        // Then it has looked, and waits for the lock.
        let writer = fixture.store.file.writer.places();
        in_time(async {
            while writer.available_permits() > 0 {
                tokio::task::yield_now().await;
            }
        })
        .await;
        run(&mut other, "COMMIT").await;
        let found = in_time(claiming).await.unwrap().unwrap().found;
        let claimed: Vec<_> = found.claimed.iter().map(|task| task.id).collect();
        assert_eq!((claimed, found.stale), (vec![id(1), id(3)], 1), "{change}");
    }
}

#[tokio::test]
async fn a_lock_that_sqlite_does_not_wait_for_is_asked_for_again() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(&mut other, "BEGIN IMMEDIATE").await;
    let options = SqliteConnectOptions::new().filename(fixture.path());
    let options = options.busy_timeout(Duration::ZERO);
    let presence = Arc::new(Presence::new(&fixture.path()));
    let (hasty, clock) = (pool(options, &presence, 1, &Clock::system()), Clock::system());
    // Long after the first refusal; a second one usually comes as well.
    let release = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        run(&mut other, "COMMIT").await;
    };
    let (writing, ()) = in_time(async { tokio::join!(write(&hasty, &clock), release) }).await;
    writing.unwrap().commit().await.unwrap();
}

#[tokio::test]
async fn a_call_that_writes_nothing_needs_no_lock() {
    let fixture = Fixture::new().await;
    let store = &fixture.store;
    store.insert(vec![new_row(1, LEASE)]).await.unwrap();
    // Of a kind that the claimer does not handle, due and overdue.
    let foreign = NewRow {
        kind: "other".into(),
        ..new_row(2, Duration::ZERO)
    };
    store.insert(vec![foreign]).await.unwrap();
    let mut other = fixture.foreign().await;
    run(&mut other, "BEGIN IMMEDIATE").await;
    in_time(async {
        let ahead = Ahead {
            within: LEASE,
            limit: 100,
        };
        let sweep = Sweep {
            limit: 100,
            retake: LEASE,
            ahead: Some(ahead),
        };
        let swept = store.sweep(&claim(9), &sweep).await.unwrap().found;
        assert_eq!(swept.waiting, [(Kind::from("other"), 1)].into());
        assert_eq!(store.ready(&claim(9)).await.unwrap().found, []);
        let looked = store.arrive(&wakes([1, 3]), &claim(9)).await.unwrap().found;
        assert_eq!((looked.early.len(), looked.stale), (1, 1));
        assert_eq!(store.purge(100).await.unwrap(), 0);
        assert!(swept.ahead.iter().any(|row| row.wake.id == id(1)));
    })
    .await;
}

#[tokio::test]
async fn a_transaction_that_sqlite_gives_up_by_itself_breaks_nothing() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(
        &mut other,
        "CREATE TRIGGER refuse BEFORE INSERT ON delayline_tasks WHEN NEW.kind = 'k'
         BEGIN SELECT RAISE(ROLLBACK, 'no room'); END",
    )
    .await;
    let refused = fixture.store.insert(due_rows([1])).await.unwrap().found;
    let error = refused[0].as_ref().unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
    run(&mut other, "DROP TRIGGER refuse").await;
    fixture.insert(due_rows([1])).await;
    assert_eq!(fixture.find(id(1)).await.state, State::Scheduled);
}

#[tokio::test]
async fn a_lock_is_transient_and_a_missing_table_is_not() {
    let fixture = Fixture::new().await;
    let (mut one, mut two) = (fixture.foreign().await, fixture.foreign().await);
    run(&mut two, "PRAGMA busy_timeout = 0").await;
    run(&mut one, "BEGIN IMMEDIATE").await;
    let begin = sqlx::query("BEGIN IMMEDIATE").execute(&mut two).await;
    assert!(failed(begin.unwrap_err()).is_transient());
    let select = sqlx::query("SELECT * FROM missing").execute(&mut two).await;
    assert!(!failed(select.unwrap_err()).is_transient());
}
