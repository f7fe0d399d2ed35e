//! The table of the example `own_table`, held to the contract as any other, and what an engine makes of it.

#[path = "../../examples/own_table/journal.rs"]
mod journal;
#[path = "../../examples/own_table/table.rs"]
mod table;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use delayline::clock::Clock;
use delayline::store::table::Table;
use delayline::store::{Engine, Store};
use delayline::testing::store::StoreFixture;
use delayline::testing::table::TableFixture;
use delayline::testing::{store_conformance, table_conformance};
use delayline::{Context, NewTask, Outcome, Scheduler, State, Worker};
use tempfile::TempDir;
use tokio::sync::Notify;

use self::table::JournalTable;

const HISTORY: Duration = Duration::from_secs(3_600);

/// Journals in folders that are removed afterwards.
#[derive(Debug)]
struct Journals {
    folder: TempDir,
    count: AtomicUsize,
    clock: Clock,
}

impl Journals {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            count: AtomicUsize::new(0),
            clock: Clock::system(),
        }
    }

    fn next(&self) -> JournalTable {
        let number = self.count.fetch_add(1, Ordering::Relaxed).to_string();
        JournalTable::open(&self.folder.path().join(number), self.clock.clone()).unwrap()
    }
}

#[async_trait]
impl TableFixture for Journals {
    async fn table(&self) -> Arc<dyn Table> {
        Arc::new(self.next())
    }
}

#[async_trait]
impl StoreFixture for Journals {
    async fn store(&self, history: Duration) -> Arc<dyn Store> {
        Arc::new(Engine::new(self.next(), self.clock.clone(), history))
    }

    async fn pass(&self, time: Duration) {
        self.clock.step(time.as_millis().try_into().unwrap());
    }
}

table_conformance!(as_a_table, Journals::new());
store_conformance!(as_a_store, Journals::new());

fn open(folder: &Path) -> Scheduler {
    let clock = Clock::system();
    let table = JournalTable::open(folder, clock.clone()).unwrap();
    Scheduler::new(Engine::new(table, clock, HISTORY))
}

/// A folder as a crash leaves it: with all that calls have come back from, and a part of the next.
fn crashed(folder: &TempDir) -> TempDir {
    let left = tempfile::tempdir().unwrap();
    let mut lines = std::fs::read(folder.path().join("journal")).unwrap();
    lines.extend(b"{\"id\":\"0");
    std::fs::write(left.path().join("journal"), lines).unwrap();
    left
}

#[tokio::test]
async fn a_task_survives_crashes_and_runs_once() {
    let folder = tempfile::tempdir().unwrap();
    let task = |key: &str, delay| NewTask::new("tea.ready", "Assam").key(key).after(delay);
    let scheduler = open(folder.path());
    let tea = task("tea", Duration::from_millis(50));
    scheduler.schedule(tea).await.unwrap();
    scheduler.schedule(task("cold", Duration::ZERO)).await.unwrap();
    let cancelled = scheduler.cancel(("tea.ready", "cold")).await.unwrap();
    assert!(cancelled.is_done());

    let folder = crashed(&folder);
    let scheduler = open(folder.path());
    let poured = Arc::new(Notify::new());
    let pour = Arc::clone(&poured);
    let worker = Worker::new(&scheduler).handle("tea.ready", move |tea: String, _: Context| {
        assert_eq!(tea, "Assam");
        pour.notify_one();
        async { Ok(Outcome::Done) }
    });
    worker.run_until(poured.notified()).await.unwrap();

    let folder = crashed(&folder);
    let scheduler = open(folder.path());
    for (key, state, attempts) in [("tea", State::Done, 1), ("cold", State::Cancelled, 0)] {
        let task = scheduler.find(("tea.ready", key)).await.unwrap().unwrap();
        assert_eq!((task.state, task.attempt), (state, attempts), "{key}");
    }
}

#[tokio::test]
async fn two_do_not_have_one_journal() {
    let folder = tempfile::tempdir().unwrap();
    let first = JournalTable::open(folder.path(), Clock::system()).unwrap();
    let error = JournalTable::open(folder.path(), Clock::system()).err().unwrap();
    assert!(!error.is_transient(), "{error}");
    drop(first);
    JournalTable::open(folder.path(), Clock::system()).unwrap();
}
