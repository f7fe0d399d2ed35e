//! Concurrent callers share calls of a store, and notice nothing of it but that it is quick. What holds for new rows holds
//! for changes, which go the same way.

mod failing;
mod sharing;

use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::*;
use crate::store::{Change, MemoryStore, NewRow, Note, Store, Target, When};
use crate::{Answer, Kind, Scheduled, TaskId};

type Caller = JoinHandle<Result<Answers<Scheduled>, Error>>;

/// Rows in memory, and calls that do what they are for and then wait until they are let go.
struct Held<const CALLS: usize> {
    rows: MemoryStore,
    clock: Clock,
    held: watch::Sender<bool>,
    waiting: AtomicUsize,
    /// How many items each call had.
    calls: Mutex<Vec<usize>>,
    /// A row that cannot be written, nor any with it; for good, unless the store is away.
    spoilt: Mutex<Option<TaskId>>,
    is_away: bool,
    /// A row that another transaction keeps locked, and how often it was waited for.
    locked: Option<TaskId>,
    waits: Mutex<Vec<usize>>,
}

impl<const CALLS: usize> Held<CALLS> {
    async fn write(&self, rows: Vec<NewRow>) -> Result<Answers<Scheduled>, Error> {
        let count = rows.len();
        self.calls.lock().unwrap().push(count);
        let spoilt = *self.spoilt.lock().unwrap();
        if rows.iter().any(|row| Some(row.id) == spoilt) {
            return Err(Error::Store {
                store: "held",
                transient: self.is_away,
                source: "refused".into(),
            });
        }
        let answers = self.rows.insert(rows).await?;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.held.subscribe().wait_for(|held| !held).await.unwrap();
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        Ok(answers)
    }
}

#[async_trait]
impl<const CALLS: usize> AnswerBatch<NewRow> for Held<CALLS> {
    type Answer = Scheduled;

    fn bytes_of(row: &NewRow) -> usize {
        row.bytes()
    }

    async fn answer_waiting(&self, rows: Vec<NewRow>) -> Result<Answers<Scheduled>, Error> {
        self.waits.lock().unwrap().push(rows.len());
        self.write(rows).await
    }

    async fn answer_at_once(&self, rows: Vec<NewRow>) -> Result<AnswersAtOnce<NewRow, Scheduled>, Error> {
        let is_locked = |row: &NewRow| Some(row.id) == self.locked;
        let free = rows.iter().filter(|row| !is_locked(row)).cloned().collect();
        let Stamped { now, found } = self.write(free).await?;
        let mut found = found.into_iter();
        let each = rows.into_iter().map(|row| match is_locked(&row) {
            true => AtOnce::Unanswered(row),
            false => AtOnce::Answered(found.next().unwrap()),
        });
        let found = each.collect();
        Ok(Stamped { now, found })
    }
}

#[async_trait]
impl<const CALLS: usize> AnswerBatch<Change> for Held<CALLS> {
    type Answer = Answer;

    fn bytes_of(change: &Change) -> usize {
        change.verb.bytes()
    }

    async fn answer_waiting(&self, changes: Vec<Change>) -> Result<Answers<Answer>, Error> {
        self.rows.change(changes).await
    }

    async fn answer_at_once(&self, changes: Vec<Change>) -> Result<AnswersAtOnce<Change, Answer>, Error> {
        self.calls.lock().unwrap().push(changes.len());
        let Stamped { now, found } = self.rows.change(changes).await?;
        let found = found.into_iter().map(AtOnce::Answered).collect();
        Ok(Stamped { now, found })
    }
}

struct World<const CALLS: usize> {
    store: Arc<Held<CALLS>>,
    inserts: Arc<Merging<NewRow, Scheduled>>,
}

impl<const CALLS: usize> World<CALLS> {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Held<CALLS>)) -> Self {
        let mut store = Held {
            rows: MemoryStore::new(),
            clock: Clock::system(),
            held: watch::Sender::new(false),
            waiting: AtomicUsize::new(0),
            calls: Mutex::default(),
            spoilt: Mutex::default(),
            is_away: false,
            locked: None,
            waits: Mutex::default(),
        };
        change(&mut store);
        Self {
            inserts: Arc::new(Merging::new("held", Some(CALLS), store.clock.clone())),
            store: Arc::new(store),
        }
    }

    /// A caller of its own for these rows.
    fn caller(&self, rows: Vec<NewRow>) -> Caller {
        let (store, inserts) = (Arc::clone(&self.store), Arc::clone(&self.inserts));
        tokio::spawn(async move { inserts.ask(&store, rows).await })
    }

    /// A caller for the row of each number.
    fn callers(&self, numbers: Range<u64>) -> Vec<Caller> {
        numbers.map(|number| self.caller(vec![row(number)])).collect()
    }

    /// Holds the calls, and has as many in flight as may be, of one caller each.
    async fn busy(&self) -> Vec<Caller> {
        self.hold(true);
        let mut busy = Vec::new();
        for number in 0..CALLS as u64 {
            busy.extend(self.callers(1_000_000 + number..1_000_001 + number));
            settled().await;
        }
        assert_eq!(self.waiting(), CALLS);
        self.store.calls.lock().unwrap().clear();
        busy
    }

    fn hold(&self, held: bool) {
        self.store.held.send_replace(held);
    }

    /// How many calls are in flight.
    fn waiting(&self) -> usize {
        self.store.waiting.load(Ordering::Relaxed)
    }

    fn calls(&self) -> Vec<usize> {
        self.store.calls.lock().unwrap().clone()
    }

    async fn is_there(&self, number: u64) -> bool {
        let found = self.store.rows.find(&Target::Id(id(number))).await;
        found.unwrap().is_some()
    }
}

fn id(number: u64) -> TaskId {
    TaskId::from_bytes(u128::from(number).to_be_bytes())
}

fn row(number: u64) -> NewRow {
    NewRow {
        id: id(number),
        kind: Kind::from("order"),
        key: None,
        payload: Vec::new(),
        headers: Default::default(),
        due: When::After(Duration::from_secs(10)),
        overdue_after: Duration::from_secs(10),
        max_attempts: None,
        replace: false,
        note: Note::default(),
    }
}

fn rows(numbers: Range<u64>) -> Vec<NewRow> {
    numbers.map(row).collect()
}

/// Every task has done what it could.
async fn settled() {
    for _ in 0..200 {
        tokio::task::yield_now().await;
    }
}

/// What a caller is told, which has rows of these numbers: that each is new.
async fn has_its_own(caller: Caller, numbers: Range<u64>) {
    let answers = caller.await.unwrap().unwrap();
    let told = answers.found.iter().map(|answer| match answer {
        Ok(Scheduled::New(row)) => row.id,
        other => panic!("{other:?}"),
    });
    assert!(told.eq(numbers.map(id)), "{answers:?}");
}

async fn each_has_its_own(callers: Vec<Caller>, numbers: Range<u64>) {
    assert_eq!(callers.len() as u64, numbers.end - numbers.start);
    for (caller, number) in callers.into_iter().zip(numbers) {
        has_its_own(caller, number..number + 1).await;
    }
}
