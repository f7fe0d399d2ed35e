#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Row, SqliteConnection};
use tempfile::TempDir;

use super::connections::{Connections, failed};
use super::{SqliteStore, sql};
use crate::store::{Change, Claim, Ending, Expect, Hop, NewRow, Settlement, Store, Verb};
use crate::{Answer, Clock, Error, Kind, Scheduled, State, Target, Task, TaskId, Wake, When};

const LEASE: Duration = Duration::from_secs(30);

/// A file of its own, and the store in it.
struct Fixture {
    folder: TempDir,
    store: SqliteStore,
}

impl Fixture {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(folder.path().join("tasks.db")).await.unwrap();
        Self { folder, store }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("tasks.db")
    }

    /// A connection of somebody else's to the same file.
    async fn foreign(&self) -> SqliteConnection {
        let options = SqliteConnectOptions::new().filename(self.path());
        options.connect().await.unwrap()
    }

    async fn find(&self, id: TaskId) -> Task {
        self.store.find(&id.into()).await.unwrap().unwrap()
    }
}

async fn run(connection: &mut SqliteConnection, sql: &'static str) {
    sqlx::raw_sql(sql).execute(connection).await.unwrap();
}

fn id(number: usize) -> TaskId {
    TaskId::from_bytes((number as u128).to_be_bytes())
}

fn new_row(number: usize, due: Duration) -> NewRow {
    NewRow {
        id: id(number),
        kind: "k".into(),
        key: None,
        payload: vec![0, 1, 255],
        headers: BTreeMap::new(),
        due: When::After(due),
        look_in: due,
        max_attempts: None,
        replace: false,
    }
}

fn due_rows(numbers: impl IntoIterator<Item = usize>) -> Vec<NewRow> {
    let row = |number| new_row(number, Duration::ZERO);
    numbers.into_iter().map(row).collect()
}

fn wakes(numbers: impl IntoIterator<Item = usize>) -> Vec<Wake> {
    let wake = |number| Wake {
        id: id(number),
        kind: "k".into(),
        version: 1,
    };
    numbers.into_iter().map(wake).collect()
}

fn claim(room: usize) -> Claim {
    Claim {
        owner: Arc::from("me"),
        lease: LEASE,
        room: [(Kind::from("k"), room)].into(),
    }
}

fn change(target: impl Into<Target>, verb: Verb) -> Change {
    Change {
        target: target.into(),
        verb,
        expect: Expect::Anything,
    }
}

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

/// For as long as a broken test may hang.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), future)
        .await
        .unwrap()
}

#[tokio::test]
async fn rows_are_there_when_the_file_is_opened_again() {
    let fixture = Fixture::new().await;
    fixture.store.insert(due_rows([1])).await.unwrap();
    let row = fixture.find(id(1)).await;
    let Fixture { folder, store } = fixture;
    drop(store);

    let store = SqliteStore::open(folder.path().join("tasks.db")).await.unwrap();
    assert_eq!(store.find(&id(1).into()).await.unwrap(), Some(row));
}

#[tokio::test]
async fn a_file_may_have_tables_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    let options = SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true);
    let mut app = options.connect().await.unwrap();
    run(
        &mut app,
        "PRAGMA user_version = 7; CREATE TABLE orders (id INTEGER PRIMARY KEY)",
    )
    .await;

    let store = SqliteStore::open(&path).await.unwrap();
    store.insert(due_rows([1])).await.unwrap();
    run(&mut app, "INSERT INTO orders DEFAULT VALUES").await;
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut app)
        .await
        .unwrap();
    assert_eq!(version, 7);
}

#[tokio::test]
async fn a_schema_of_a_later_release_is_refused_and_left_alone() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(&mut other, "INSERT INTO delayline_migrations VALUES (99, 0)").await;
    let error = SqliteStore::open(fixture.path()).await.unwrap_err();
    assert!(!error.is_transient());
    assert!(error.to_string().contains("version 99"), "{error}");
    assert!(error.to_string().contains("later release"), "{error}");

    run(&mut other, "DELETE FROM delayline_migrations WHERE version = 99").await;
    SqliteStore::open(fixture.path()).await.unwrap();
}

#[tokio::test]
async fn many_may_open_a_new_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tasks.db");
    let open = |number| {
        let path = path.clone();
        tokio::spawn(async move {
            let store = SqliteStore::open(path).await?;
            store.insert(due_rows([number])).await
        })
    };
    let opened: Vec<_> = (0..8).map(open).collect();
    for opened in opened {
        in_time(opened).await.unwrap().unwrap();
    }
    let store = SqliteStore::open(path).await.unwrap();
    let found = store.ready(&claim(100)).await.unwrap().found;
    assert_eq!(found.len(), 8);
}

#[tokio::test]
async fn a_path_that_cannot_be_used_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "no database at all, but longer than a header would be").unwrap();
    let missing = folder.path().join("missing").join("tasks.db");
    for path in [missing, folder.path().to_owned(), text, ":memory:".into()] {
        let error = SqliteStore::open(&path).await.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        assert!(error.to_string().contains(&path.display().to_string()), "{error}");
    }
}

/// The steps of a plan that read a table or an index from end to end.
async fn scans(connection: &mut SqliteConnection, sql: &str) -> Vec<String> {
    let plan = sqlx::query(AssertSqlSafe(format!("EXPLAIN QUERY PLAN {sql}")))
        .fetch_all(connection)
        .await
        .unwrap();
    // What a batch gives, what is found for it, and each kind once; never the table under any of its aliases.
    let harmless = [
        "SCAN j VIRTUAL TABLE",
        "SCAN first",
        "SCAN kinds",
        "SCAN CONSTANT ROW",
    ];
    plan.iter()
        .map(|step| step.get::<String, _>("detail"))
        .filter(|step| step.contains("SCAN") && !harmless.iter().any(|prefix| step.starts_with(prefix)))
        .collect()
}

#[tokio::test]
async fn no_statement_reads_the_table_from_end_to_end() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.foreign().await;
    assert_ne!(
        scans(&mut connection, "SELECT * FROM delayline_tasks").await,
        [""; 0]
    );
    for analyzed in [false, true] {
        for (name, sql) in sql::ALL {
            assert_eq!(
                scans(&mut connection, sql).await,
                [""; 0],
                "{name}, analyzed: {analyzed}"
            );
        }
        // The statistics of few rows, all of one kind and state, are those that mislead a planner most.
        fixture.store.insert(due_rows(0..20)).await.unwrap();
        run(&mut connection, "ANALYZE").await;
    }
}

#[tokio::test]
async fn texts_and_bytes_come_back_as_they_were() {
    let fixture = Fixture::new().await;
    let odd = "quote \" ' \\ nul \0 tab \t \u{1F600} \u{2028} []{}";
    let mut row = new_row(1, Duration::ZERO);
    row.key = Some("k\"'{é".into());
    row.headers = [(odd.to_owned(), odd.to_owned())].into();
    row.payload = (0..=255).collect();
    row.max_attempts = Some(u32::MAX);
    let inserted = fixture.store.insert(vec![row.clone()]).await.unwrap().found;
    assert_eq!(inserted[0].task(), &fixture.find(id(1)).await);

    let claimed = fixture.store.ready(&claim(1)).await.unwrap().found;
    assert_eq!(claimed[0], fixture.find(id(1)).await);
    assert_eq!(claimed[0].payload, row.payload);
    let ending = Ending::Dead {
        error: odd.to_owned(),
        give_back: false,
    };
    let settlement = Settlement {
        id: id(1),
        version: 2,
        ending,
    };
    assert_eq!(fixture.store.settle(vec![settlement]).await.unwrap(), [true]);
    let dead = fixture.find(id(1)).await;
    assert_eq!(dead.last_error.as_deref(), Some(odd));

    let redrive = Verb::Redrive { look_in: LEASE };
    let target = ("k", "k\"'{é");
    let answers = fixture.store.change(vec![change(target, redrive)]).await.unwrap();
    assert_eq!(answers.found, [Answer::Done(fixture.find(id(1)).await)]);
}

#[tokio::test]
async fn a_batch_with_old_and_new_rows_is_decided_row_by_row() {
    let fixture = Fixture::new().await;
    let named = |number, key: &str, payload: u8, replace| NewRow {
        key: Some(key.into()),
        payload: vec![payload],
        replace,
        ..new_row(number, LEASE)
    };
    let first = vec![named(1, "a", 1, false), new_row(2, LEASE)];
    fixture.store.insert(first).await.unwrap();
    let batch = vec![
        new_row(2, LEASE),
        named(3, "a", 3, true),
        named(4, "a", 4, false),
        named(5, "b", 5, false),
        named(6, "b", 6, true),
        new_row(7, LEASE),
        new_row(7, LEASE),
    ];
    let found = fixture.store.insert(batch).await.unwrap().found;
    let seen: Vec<_> = found
        .iter()
        .map(|answer| {
            let task = answer.task();
            let name = match answer {
                Scheduled::New(_) => "new",
                Scheduled::Existing(_) => "existing",
                Scheduled::Replaced(_) => "replaced",
                Scheduled::Running(_) => "running",
            };
            (name, task.id, task.version, task.payload[0])
        })
        .collect();
    let expected = [
        ("existing", id(2), 1, 0),
        ("replaced", id(1), 2, 3),
        ("existing", id(1), 2, 3),
        ("new", id(5), 1, 5),
        ("replaced", id(5), 2, 6),
        ("new", id(7), 1, 0),
        ("existing", id(7), 1, 0),
    ];
    assert_eq!(seen, expected);
    for number in [1, 5] {
        let last = found.iter().rev().find(|answer| answer.task().id == id(number));
        assert_eq!(last.unwrap().task(), &fixture.find(id(number)).await);
    }
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
                let found = store.insert((0..10).map(row).collect()).await?.found;
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
async fn an_abandoned_call_is_done_or_not_and_holds_up_nobody() {
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
async fn a_lock_of_somebody_else_is_waited_for() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(&mut other, "BEGIN IMMEDIATE").await;
    let store = fixture.store.clone();
    let insert = tokio::spawn(async move { store.insert(due_rows([1])).await });
    // Nobody can say when it has begun to wait; that it has not finished is the point.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    assert!(!insert.is_finished());
    run(&mut other, "COMMIT").await;
    in_time(insert).await.unwrap().unwrap();
}

#[tokio::test]
async fn a_lock_that_sqlite_does_not_wait_for_is_asked_for_again() {
    let fixture = Fixture::new().await;
    let mut other = fixture.foreign().await;
    run(&mut other, "BEGIN IMMEDIATE").await;
    let options = SqliteConnectOptions::new().filename(fixture.path());
    let hasty = Connections::new(options.busy_timeout(Duration::ZERO), 1, Clock::system());
    // Long after the first refusal; a second one usually comes as well.
    let release = async {
        tokio::time::sleep(Duration::from_millis(30)).await;
        run(&mut other, "COMMIT").await;
    };
    let (writing, ()) = in_time(async { tokio::join!(hasty.write(), release) }).await;
    writing.unwrap().commit().await.unwrap();
}

#[tokio::test]
async fn who_has_nothing_to_write_needs_no_lock() {
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
        let swept = store.sweep(&claim(9), 100, LEASE).await.unwrap().found;
        assert_eq!(swept.waiting, [(Kind::from("other"), 1)].into());
        assert_eq!(store.ready(&claim(9)).await.unwrap().found, []);
        let looked = store.arrive(&wakes([1, 3]), &claim(9)).await.unwrap().found;
        assert_eq!((looked.early.len(), looked.stale), (1, 1));
        assert_eq!(store.purge(100).await.unwrap(), 0);
        assert_eq!(store.upcoming(LEASE, 100).await.unwrap().found.len(), 1);
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
    let error = fixture.store.insert(due_rows([1])).await.unwrap_err();
    assert!(error.to_string().contains("no room"), "{error}");
    run(&mut other, "DROP TRIGGER refuse").await;
    fixture.store.insert(due_rows([1])).await.unwrap();
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

#[tokio::test]
async fn a_row_that_makes_no_sense_is_an_error() {
    let fixture = Fixture::new().await;
    fixture.store.insert(due_rows([1])).await.unwrap();
    let mut other = fixture.foreign().await;
    for (spoil, restore) in [
        (
            "UPDATE delayline_tasks SET state = 9",
            "UPDATE delayline_tasks SET state = 0",
        ),
        (
            "UPDATE delayline_tasks SET hop = -1",
            "UPDATE delayline_tasks SET hop = 0",
        ),
        (
            "UPDATE delayline_tasks SET headers = 'x'",
            "UPDATE delayline_tasks SET headers = '{}'",
        ),
        (
            "UPDATE delayline_tasks SET version = -1",
            "UPDATE delayline_tasks SET version = 1",
        ),
    ] {
        run(&mut other, spoil).await;
        let error = fixture.store.find(&id(1).into()).await.unwrap_err();
        assert!(!error.is_transient(), "{error}");
        run(&mut other, restore).await;
        fixture.find(id(1)).await;
    }
}

#[tokio::test]
async fn one_row_may_hop_twice_in_a_batch() {
    let fixture = Fixture::new().await;
    fixture.store.insert(vec![new_row(1, LEASE)]).await.unwrap();
    let hop = |version| Hop {
        id: id(1),
        version,
        look_in: LEASE,
    };
    let recorded = fixture
        .store
        .hop(&[hop(1), hop(1), hop(2), hop(9)])
        .await
        .unwrap();
    assert_eq!(recorded, [true, false, true, false]);
    let row = fixture.find(id(1)).await;
    assert_eq!((row.version, row.hop), (3, 2));
}

#[tokio::test]
async fn times_are_those_of_the_clock_that_the_store_was_given() {
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::system();
    let path = folder.path().join("tasks.db");
    let store = SqliteStore::open_with_clock(path, clock.clone()).await.unwrap();
    let store = store.keep_history(Duration::ZERO);
    let before = clock.now();
    let inserted = store.insert(due_rows([1])).await.unwrap();
    assert!((before..=clock.now()).contains(&inserted.now));
    let cancelled = store.change(vec![change(id(1), Verb::Cancel)]).await.unwrap();
    assert_eq!(cancelled.found[0].task().unwrap().wake_at, Some(cancelled.now));
    assert_eq!(store.purge(10).await.unwrap(), 1);
}

#[tokio::test]
async fn a_purge_keeps_to_its_limit_over_both_kinds_of_history() {
    let fixture = Fixture::new().await;
    let store = fixture.store.clone().keep_history(Duration::ZERO);
    store.insert(due_rows(0..6)).await.unwrap();
    let claimed = store.arrive(&wakes(0..3), &claim(3)).await.unwrap().found.claimed;
    let done = |task: Task| Settlement {
        id: task.id,
        version: task.version,
        ending: Ending::Done,
    };
    store
        .settle(claimed.into_iter().map(done).collect())
        .await
        .unwrap();
    let cancel = |number| change(id(number), Verb::Cancel);
    store.change((3..6).map(cancel).collect()).await.unwrap();
    let purged = [store.purge(4).await.unwrap(), store.purge(4).await.unwrap()];
    assert_eq!(purged, [4, 2]);
}
