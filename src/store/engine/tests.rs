//! Callers that write first, rows that others keep locked, and rows that cannot be read.

#![allow(clippy::unwrap_used)]

mod crowded;
mod locked;
mod quicker;
mod reckoned;

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::Key;
use crate::store::memory::MemoryTable;
use crate::store::table::{Columns, Fault, Found, Outcome, Range, Unreadable, Write};
use crate::store::{Ending, Expect, Verb, When};

const LONG: Duration = Duration::from_secs(3_600);

/// Rows in memory that other callers change and lock.
#[derive(Clone)]
struct Meddled {
    rows: MemoryTable,
    others: Arc<Others>,
}

#[derive(Default)]
struct Others {
    /// What another caller does between the next reading and the writing.
    quicker: Mutex<Option<Quicker>>,
    /// Whether it does so every time.
    always: AtomicBool,
    locked: Mutex<BTreeSet<TaskId>>,
    unreadable: Mutex<BTreeSet<TaskId>>,
    /// How often rows were read, and written.
    reads: Mutex<usize>,
    writes: Mutex<usize>,
    /// After how many more reads the table fails for good.
    reads_left: Mutex<Option<usize>>,
    /// Whether other calls get on before rows are written.
    crowded: AtomicBool,
    /// How many rows of ranges, or to be removed, the table has time for: of more it never gives an answer.
    enough: Mutex<Option<usize>>,
}

#[derive(Clone)]
enum Quicker {
    Changes(Vec<Change>),
    Renews(Renewal),
}

impl Meddled {
    async fn in_time(&self, found: &[Found]) {
        let rows: usize = found.iter().map(|found| found.rows.len()).sum();
        let enough = *self.others.enough.lock().unwrap();
        if enough.is_some_and(|enough| rows > enough) {
            std::future::pending().await
        }
    }

    fn may_read(&self) -> Result<(), Error> {
        if let Some(left) = &mut *self.others.reads_left.lock().unwrap() {
            *left = left.checked_sub(1).ok_or_else(|| Error::Store {
                store: "meddled",
                transient: false,
                source: "it may not be read any more".into(),
            })?;
        }
        Ok(())
    }

    fn sound(&self, mut found: Found) -> Found {
        let spoilt = self.others.unreadable.lock().unwrap();
        let (rows, spoilt): (Vec<_>, Vec<_>) =
            found.rows.into_iter().partition(|row| !spoilt.contains(&row.id));
        found.rows = rows;
        found.unreadable.extend(spoilt.into_iter().map(|row| Unreadable {
            row: row.id.as_bytes().to_vec(),
            id: Some(row.id),
            key: row.key.map(|key| (row.kind, key)),
            is_live: row.state.is_live(),
            why: "spoilt".to_owned(),
            fault: Fault::Row,
        }));
        found
    }
}

#[async_trait]
impl Table for Meddled {
    fn name(&self) -> &'static str {
        "meddled"
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.rows.now().await
    }

    async fn read(
        &self,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
        columns: Columns,
    ) -> Result<Stamped<Found>, Error> {
        *self.others.reads.lock().unwrap() += 1;
        self.may_read()?;
        let Stamped { now, found } = self.rows.read(ids, keys, columns).await?;
        let found = self.sound(found);
        Ok(Stamped { now, found })
    }

    async fn range(&self, ranges: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        self.may_read()?;
        let Stamped { now, found } = self.rows.range(ranges, columns).await?;
        self.in_time(&found).await;
        let found = found.into_iter().map(|found| self.sound(found)).collect();
        Ok(Stamped { now, found })
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        self.rows.count(kind, state, spans, most).await
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        self.rows.insert(rows).await
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        *self.others.writes.lock().unwrap() += 1;
        if self.others.crowded.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        let quicker = self.others.quicker.lock().unwrap().clone();
        if !self.others.always.load(Ordering::Relaxed) {
            *self.others.quicker.lock().unwrap() = None;
        }
        let other = Engine::new(self.rows.clone(), Clock::system(), LONG);
        match quicker {
            Some(Quicker::Changes(changes)) => drop(other.change(changes).await?),
            Some(Quicker::Renews(renewal)) => drop(other.renew(&[renewal], LONG).await?),
            None => {}
        }
        let mut came = Vec::new();
        for write in writes {
            let is_locked = self.others.locked.lock().unwrap().contains(&write.row.id);
            came.extend(match is_locked {
                true => vec![Outcome::Locked],
                false => self.rows.write(std::slice::from_ref(write)).await?,
            });
        }
        Ok(came)
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error> {
        let past: Vec<_> = states.iter().map(|&state| Range::overdue(state, limit)).collect();
        self.in_time(&self.rows.range(&past, Columns::Lean).await?.found)
            .await;
        self.rows.remove(states, limit).await
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        self.rows.kinds(state, after, limit).await
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        self.rows.history(id).await
    }
}

struct Fixture {
    engine: Engine<Meddled>,
    others: Arc<Others>,
    clock: Clock,
}

impl Fixture {
    /// Rows 1 to 3, each of a key of its own, due in so long.
    async fn new(due: Duration) -> Self {
        let clock = Clock::simulated(1);
        let others = Arc::<Others>::default();
        let table = Meddled {
            rows: MemoryTable::new(clock.clone()),
            others: Arc::clone(&others),
        };
        let engine = Engine::new(table, clock.clone(), LONG);
        let rows = (1..=3)
            .map(|number| row(number, &number.to_string(), due))
            .collect();
        engine.insert(rows).await.unwrap();
        Self {
            engine,
            others,
            clock,
        }
    }

    fn meanwhile(&self, changes: Vec<Change>) {
        *self.others.quicker.lock().unwrap() = Some(Quicker::Changes(changes));
    }

    async fn change(&self, changes: Vec<Change>) -> Vec<Answer> {
        let found = self.engine.change(changes).await.unwrap().found;
        found.into_iter().map(Result::unwrap).collect()
    }

    async fn get(&self, number: u8) -> Task {
        self.engine.find(&id(number).into()).await.unwrap().unwrap()
    }

    /// The claim of every row that is due.
    async fn claimed(&self, lease: Duration) -> Vec<Task> {
        self.engine.ready(&claim(lease)).await.unwrap().found
    }
}

fn id(number: u8) -> TaskId {
    TaskId::from_bytes([number; 16])
}

fn row(number: u8, key: &str, due: Duration) -> NewRow {
    NewRow {
        id: id(number),
        kind: "k".into(),
        key: Some(key.into()),
        payload: vec![number],
        headers: Default::default(),
        due: When::After(due),
        overdue_after: due,
        max_attempts: None,
        replace: false,
        note: Default::default(),
    }
}

fn claim(lease: Duration) -> Claim {
    Claim {
        owner: "me".into(),
        lease,
        room: [(Kind::from("k"), 9)].into(),
        bytes: usize::MAX,
        history: Default::default(),
    }
}

fn change(number: u8, verb: Verb) -> Change {
    Change {
        target: id(number).into(),
        verb,
        expect: Expect::Anything,
        note: Default::default(),
    }
}

fn later(number: u8) -> Change {
    let (due, overdue_after) = (When::After(2 * LONG), LONG);
    change(number, Verb::Reschedule { due, overdue_after })
}
