//! A file that hangs, is locked, full, read-only, or away; and a clock that comes back.

use std::time::Duration;

use sqlx::SqliteConnection;

use super::{Fixture, LEASE, change, claim, due_rows, id, in_time, new_row, run, wakes};
use crate::clock::Clock;
use crate::store::sql::tests::refused::a_row_is_refused_alone;
use crate::store::sqlite::{READERS, SqliteStore};
use crate::store::{Ending, Guarded, NewRow, Renewal, Step, Store, Sweep, Verb};
use crate::{Error, Scheduled, State, Task};

/// For how long a call may take in these tests.
const LIMIT: Duration = Duration::from_secs(1);

impl Fixture {
    /// A store whose calls take no longer than [`LIMIT`].
    async fn limited() -> Self {
        let mut fixture = Self::new().await;
        fixture.store.engine.limit(LIMIT);
        fixture
    }

    /// Makes the store's own connection so.
    async fn with_writer(&self, sql: &'static str) {
        let mut lent = self.store.file.writer.lend().await.unwrap();
        run(&mut lent, sql).await;
        lent.give_back();
    }
}

fn ends(claimed: &[Task]) -> Vec<Step> {
    let end = |task: &Task| Step::end(task.id, task.version, Ending::Done);
    claimed.iter().map(end).collect()
}

#[track_caller]
fn passes(error: &Error) {
    assert!(error.is_transient(), "{error}");
}

#[tokio::test]
async fn a_call_that_hangs_ends_and_so_do_those_behind_it() {
    let fixture = Fixture::limited().await;
    let store = &fixture.store;
    // A thread that comes back when the lock is free, as one that waits for a disk.
    fixture.with_writer("PRAGMA busy_timeout = 100000000").await;
    let mut other = fixture.foreign().await;
    run(&mut other, "BEGIN IMMEDIATE").await;
    let calls = async { tokio::join!(store.insert(due_rows([1])), store.insert(due_rows([2]))) };
    let (hung, behind) = in_time(calls).await;
    let hung = hung.unwrap_err();
    passes(&hung);
    assert!(hung.to_string().contains(&format!("within {LIMIT:?}")), "{hung}");
    passes(&behind.unwrap_err());
    // However many come meanwhile, no other thread waits for the file.
    for _ in 0..100 {
        tokio::task::yield_now().await;
        assert_eq!(store.file.writer.places().available_permits(), 0);
    }
    passes(&in_time(store.insert(due_rows([3]))).await.unwrap_err());
    // What reads goes on.
    assert_eq!(store.find(&id(1).into()).await.unwrap(), None);

    run(&mut other, "COMMIT").await;
    // Once the thread is back what it was to do is undone, and all go on.
    in_time(async {
        while let Err(error) = store.insert(due_rows([4])).await {
            passes(&error);
        }
    })
    .await;
    for number in 1..4 {
        assert_eq!(store.find(&id(number).into()).await.unwrap(), None);
    }
    fixture.find(id(4)).await;
}

#[tokio::test]
async fn a_file_that_stays_locked_lets_every_call_end() {
    let fixture = Fixture::limited().await;
    let store = &fixture.store;
    fixture.insert(due_rows([1, 2])).await;
    let claimed = store.arrive(&wakes([1]), &claim(1)).await.unwrap().found.claimed;
    let mut other = fixture.foreign().await;
    run(&mut other, "BEGIN IMMEDIATE").await;
    let renewals = [Renewal {
        id: id(1),
        version: 2,
        started: true,
    }];
    let cancel = vec![change(id(2), Verb::Cancel)];
    let claim = claim(9);
    let wakes = wakes([2]);
    let ends_of_claims = ends(&claimed);
    let all = in_time(async {
        tokio::join!(
            store.insert(due_rows([3])),
            store.change(cancel),
            store.advance(&ends_of_claims),
            store.renew(&renewals, LEASE),
            store.arrive(&wakes, &claim),
            store.ready(&claim),
            SqliteStore::open(fixture.path()),
        )
    })
    .await;
    passes(&all.0.unwrap_err());
    passes(&all.1.unwrap_err());
    passes(&all.2.unwrap_err());
    passes(&all.3.unwrap_err());
    passes(&all.4.unwrap_err());
    passes(&all.5.unwrap_err());
    passes(&all.6.unwrap_err());
    run(&mut other, "COMMIT").await;
    // The thread of the last call may still be on its way back.
    in_time(async {
        loop {
            match store.advance(&ends(&claimed)).await {
                Ok(settled) => break assert_eq!(settled, [Guarded::Done]),
                Err(error) => passes(&error),
            }
        }
    })
    .await;
    assert_eq!(fixture.find(id(2)).await.version, 1);
}

#[tokio::test]
async fn an_end_of_a_claim_outlives_a_file_that_is_read_only_for_a_moment() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1])).await;
    let claimed = fixture.store.ready(&claim(1)).await.unwrap().found;
    fixture.with_writer("PRAGMA query_only = ON").await;
    let error = fixture.store.advance(&ends(&claimed)).await.unwrap_err();
    passes(&error);
    assert!(error.to_string().contains("readonly"), "{error}");
    // The connection that was so is not used again.
    let settled = fixture.store.advance(&ends(&claimed)).await.unwrap();
    assert_eq!(settled, [Guarded::Done]);
}

#[tokio::test]
async fn a_full_disk_leaves_nothing_half_done_and_passes() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1])).await;
    let claimed = fixture.store.ready(&claim(1)).await.unwrap().found;
    // Room for some of the rows.
    let large = |number| NewRow {
        payload: vec![7; 200_000],
        ..new_row(number, LEASE)
    };
    let rows: Vec<_> = (10..20).map(large).collect();
    fixture.with_writer("PRAGMA max_page_count = 200").await;
    let error = fixture.store.insert(rows.clone()).await.unwrap_err();
    passes(&error);
    assert!(error.to_string().contains("full"), "{error}");
    for row in &rows {
        assert_eq!(fixture.store.find(&row.id.into()).await.unwrap(), None);
    }
    // An operator made room.
    assert_eq!(
        fixture.store.advance(&ends(&claimed)).await.unwrap(),
        [Guarded::Done]
    );
    let added = fixture.insert(rows).await;
    assert!(added.iter().all(|added| matches!(added, Scheduled::New(_))));
}

#[tokio::test]
async fn a_file_that_was_moved_away_is_missed_and_not_made_anew() {
    let fixture = Fixture::new().await;
    fixture.insert(due_rows([1])).await;
    // As after any failure, the next call opens the file.
    let file = &fixture.store.file;
    for (connections, count) in [(&file.writer, 1), (&file.readers, READERS as u32)] {
        drop(connections.lend().await.unwrap());
        // It is closed when its place is free.
        drop(connections.places().acquire_many(count).await.unwrap());
    }
    let away = fixture.folder.path().join("away");
    std::fs::create_dir(&away).unwrap();
    let files = || ["tasks.db", "tasks.db-wal", "tasks.db-shm"].into_iter();
    let carry = |from: &std::path::Path, to: &std::path::Path| {
        for file in files().filter(|file| from.join(file).exists()) {
            std::fs::rename(from.join(file), to.join(file)).unwrap();
        }
    };
    carry(fixture.folder.path(), &away);
    passes(&fixture.store.insert(due_rows([2])).await.unwrap_err());
    assert!(!fixture.path().exists());
    carry(&away, fixture.folder.path());
    let added = fixture.insert(due_rows([1, 2])).await;
    assert!(matches!(added[..], [Scheduled::Existing(_), Scheduled::New(_)]));
}

#[tokio::test]
async fn a_missing_table_costs_no_connection_for_each_call() {
    let fixture = Fixture::new().await;
    let readers = &fixture.store.file.readers;
    let mut lent = readers.lend().await.unwrap();
    run(&mut lent, "PRAGMA cache_size = 77").await;
    lent.give_back();
    run(&mut fixture.foreign().await, "DROP TABLE delayline_tasks").await;
    fixture.store.find(&id(1).into()).await.unwrap_err();
    fixture.store.ready(&claim(1)).await.unwrap_err();
    let mut lent = readers.lend().await.unwrap();
    let size = sqlx::query_scalar::<_, i64>("PRAGMA cache_size")
        .fetch_one(&mut *lent)
        .await;
    assert_eq!(size.unwrap(), 77, "it is the same connection");
}

#[tokio::test]
async fn a_row_that_the_file_refuses_is_refused_alone() {
    let fixture = Fixture::new().await;
    let refuse: &'static str =
        "CREATE TRIGGER refuse BEFORE INSERT ON delayline_tasks WHEN NEW.payload = x'BAD0'
            BEGIN SELECT RAISE(ABORT, 'not this one'); END;
        CREATE TRIGGER keep BEFORE UPDATE ON delayline_tasks WHEN OLD.payload = x'0BAD' AND NEW.state = 4
            BEGIN SELECT RAISE(ABORT, 'not this one either'); END";
    run(&mut fixture.foreign().await, refuse).await;
    let rows = (0..40).map(|number| new_row(number, LEASE));
    a_row_is_refused_alone(&fixture.store, rows.collect()).await;
}

#[tokio::test]
async fn rows_of_one_call_are_of_one_moment_also_where_one_of_them_is_refused() {
    let fixture = Fixture::new().await;
    // Each statement takes a while, and of many rows one by one there are some.
    let refuse: &'static str =
        "CREATE TRIGGER refuse BEFORE INSERT ON delayline_tasks WHEN NEW.payload = x'BAD0'
            BEGIN SELECT RAISE(ABORT, 'not this one'); END;
        CREATE TRIGGER slow BEFORE INSERT ON delayline_tasks
            BEGIN SELECT count(*) FROM (WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c LIMIT 20000)
                SELECT n FROM c); END";
    run(&mut fixture.foreign().await, refuse).await;
    let mut rows: Vec<_> = (0..20).map(|number| new_row(number, LEASE)).collect();
    rows[7].payload = vec![0xBA, 0xD0];
    let answers = fixture.store.insert(rows).await.unwrap().found;
    let added: Vec<_> = answers.into_iter().filter_map(Result::ok).collect();
    assert_eq!(added.len(), 19);
    for added in added {
        assert_eq!(&fixture.find(added.task().id).await, added.task());
    }
}

#[tokio::test]
async fn leases_that_were_given_while_the_clock_was_ahead_end_in_time() {
    const HOUR: i64 = 3_600_000;
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let path = folder.path().join("tasks.db");
    let store = SqliteStore::builder(&path)
        .clock(clock.clone())
        .open()
        .await
        .unwrap();
    store.insert(due_rows(1..5)).await.unwrap();
    clock.step(HOUR);
    store.arrive(&wakes([1, 2]), &claim(2)).await.unwrap();
    clock.step(25_000 - HOUR);
    store.arrive(&wakes([4]), &claim(1)).await.unwrap();
    clock.step(-25_000);
    store.arrive(&wakes([3]), &claim(1)).await.unwrap();
    let renewal = |number| Renewal {
        id: id(number),
        version: 2,
        started: false,
    };
    store.renew(&[renewal(2), renewal(4)], LEASE).await.unwrap();
    let row = async |number| store.find(&id(number).into()).await.unwrap().unwrap();
    let before = [row(1).await, row(2).await, row(3).await, row(4).await];
    let start = clock.now();
    assert_eq!(store.purge(10).await.unwrap(), 0);
    let lease_until = row(1).await.wake_at.unwrap();
    assert!((start.after(LEASE)..=clock.now().after(LEASE)).contains(&lease_until));
    assert_eq!((row(1).await.state, row(1).await.version), (State::Running, 2));
    // Those that were renewed since, and one that was given since, have the right one.
    assert_eq!(row(2).await.wake_at, before[1].wake_at);
    assert_eq!(row(4).await.wake_at, before[3].wake_at);
    assert_eq!(row(3).await, before[2]);
    clock.step(31_000);
    let sweep = Sweep {
        limit: 9,
        retake: LEASE,
        ahead: None,
    };
    assert_eq!(store.sweep(&claim(0), &sweep).await.unwrap().found.expired, 4);
}

#[tokio::test]
async fn the_newest_of_a_key_is_the_one_that_was_written_last() {
    let fixture = Fixture::new().await;
    let named = |number| NewRow {
        key: Some("a".into()),
        ..new_row(number, LEASE)
    };
    // Ids are made by processes whose clocks differ.
    for (number, created_at) in [(2, 1_000), (1, 2_000)] {
        fixture.insert(vec![named(number)]).await;
        fixture.change(vec![change(id(number), Verb::Cancel)]).await;
        let mut other: SqliteConnection = fixture.foreign().await;
        sqlx::query("UPDATE delayline_tasks SET created_at = ?1 WHERE id = ?2")
            .bind(created_at)
            .bind(id(number).as_bytes().to_vec())
            .execute(&mut other)
            .await
            .unwrap();
    }
    let found = fixture.store.find(&("k", "a").into()).await.unwrap();
    assert_eq!(found.unwrap().id, id(1));
    let answers = fixture.change(vec![change(("k", "a"), Verb::Cancel)]).await;
    assert_eq!(answers[0].task().unwrap().id, id(1));
}
