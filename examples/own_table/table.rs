//! Implements the table over the journal.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use delayline::clock::Clock;
use delayline::store::table::{By, Columns, Found, Outcome, Range, Start, Table, Write};
use delayline::store::{NewRow, Noted, Stamped};
use delayline::{Error, Key, Kind, State, Task, TaskId, Timestamp};

use super::journal::{Journal, Kept};

const NAME: &str = "journal";

/// Keeps rows in the memory of one process, and in a journal.
#[derive(Clone)]
pub(crate) struct JournalTable {
    journal: Arc<Mutex<Journal>>,
    clock: Clock,
}

impl JournalTable {
    /// Opens the table of a folder, which is created if it is missing.
    pub(crate) fn open(folder: &Path, clock: Clock) -> Result<Self, Error> {
        let journal = Arc::new(Mutex::new(Journal::open(folder).map_err(failed)?));
        Ok(Self { journal, clock })
    }

    /// Runs a call that has all rows to itself, and returns its result with the time at which it ran. It is on a thread
    /// that may wait for the disk, and goes on to its end even if its caller is gone: so each call is done, or not at
    /// all.
    async fn call<A: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Journal, Timestamp) -> io::Result<A> + Send + 'static,
    ) -> Result<Stamped<A>, Error> {
        let Self { journal, clock } = self.clone();
        let called = tokio::task::spawn_blocking(move || {
            let journal = journal.lock();
            let mut journal = journal.map_err(|_| io::Error::other("a call has panicked"))?;
            let now = clock.now();
            let found = journal.call(|journal| call(journal, now))?;
            Ok(Stamped { now, found })
        });
        called
            .await
            .unwrap_or_else(|error| Err(error.into()))
            .map_err(failed)
    }
}

/// Makes an error that does not pass by itself: the journal has to be opened again.
fn failed(error: io::Error) -> Error {
    Error::Store {
        store: NAME,
        transient: false,
        source: error.into(),
    }
}

#[async_trait]
impl Table for JournalTable {
    fn name(&self) -> &'static str {
        NAME
    }

    /// One: while the disk is busy with a call, the next ones are merged.
    fn calls(&self) -> Option<usize> {
        Some(1)
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.clock.now())
    }

    async fn read(
        &self,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
        columns: Columns,
    ) -> Result<Stamped<Found>, Error> {
        let (ids, keys) = (ids.to_vec(), keys.to_vec());
        self.call(move |journal, _| {
            let by_id = ids.iter().filter_map(|id| journal.get(*id));
            let by_key = keys.iter().filter_map(|(kind, key)| journal.of_key(kind, key));
            Ok(found(by_id.chain(by_key), columns))
        })
        .await
    }

    async fn range(&self, ranges: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        let ranges = ranges.to_vec();
        self.call(move |journal, now| {
            let each = ranges
                .iter()
                .map(|range| found(journal.range(range, now), columns));
            Ok(each.collect())
        })
        .await
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let (kind, spans) = (kind.clone(), spans.to_vec());
        self.call(move |journal, now| {
            let count = |within: &Duration| {
                let due = Range {
                    kind: Some(kind.clone()),
                    within: Some(*within),
                    ..range(By::Due, state, most)
                };
                journal.range(&due, now).len()
            };
            Ok(spans.iter().map(count).collect())
        })
        .await
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        let rows = rows.to_vec();
        self.call(move |journal, now| {
            let insert = |new: NewRow| {
                let live = journal.live(&new.kind, new.key.as_ref());
                if live.is_some() || journal.get(new.id).is_some() {
                    return Ok(Outcome::Lost);
                }
                let (row, noted) = new.row(now);
                journal.set(Kept::new(row, noted))?;
                Ok(Outcome::Written)
            };
            rows.into_iter().map(insert).collect()
        })
        .await
    }

    async fn write(&self, rows: &[Write]) -> Result<Vec<Outcome>, Error> {
        let rows = rows.to_vec();
        let called = self.call(move |journal, _| {
            let write = |write: Write| {
                let live = journal.live(&write.row.kind, write.row.key.as_ref());
                let is_second =
                    write.row.state.is_live() && live.is_some_and(|live| live.row.id != write.row.id);
                let before = journal.get(write.row.id);
                let before = before.filter(|before| !is_second && is_as_it_was(&before.row, &write));
                let Some(before) = before.cloned() else {
                    return Ok(Outcome::Lost);
                };
                let mut noted = before.noted();
                noted.append(&write.noted);
                let mut row = write.row;
                if !write.refill {
                    row.payload = before.row.payload;
                    row.headers = before.row.headers;
                    row.max_attempts = before.row.max_attempts;
                }
                journal.set(Kept::new(row, noted))?;
                Ok(Outcome::Written)
            };
            rows.into_iter().map(write).collect()
        });
        Ok(called.await?.found)
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error> {
        let states = states.to_vec();
        let removed = self.call(move |journal, now| {
            let mut of_kinds: BTreeMap<Kind, Vec<TaskId>> = BTreeMap::new();
            for state in states {
                let past = Range {
                    within: Some(Duration::ZERO),
                    ..range(By::Wake, state, limit)
                };
                for kept in journal.range(&past, now) {
                    let of_kind = of_kinds.entry(kept.row.kind.clone()).or_default();
                    of_kind.push(kept.row.id);
                }
            }
            let past = of_kinds.into_values().flat_map(|ids| ids.into_iter().take(limit));
            let mut removed = 0;
            for id in past {
                journal.remove(id)?;
                removed += 1;
            }
            Ok(removed)
        });
        Ok(removed.await?.found)
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        let after = after.cloned();
        let kinds =
            self.call(move |journal, _| Ok(journal.kinds(state, after.as_ref()).take(limit).collect()));
        Ok(kinds.await?.found)
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        let noted = self.call(move |journal, _| Ok(journal.get(id).map(Kept::noted).unwrap_or_default()));
        Ok(noted.await?.found)
    }
}

/// The guard on which everything rests: the row was not written since it was read.
fn is_as_it_was(row: &Task, write: &Write) -> bool {
    let has_moved = |wake_at| row.wake_at != Some(wake_at);
    row.version == write.before.version && !write.wake_at().is_some_and(has_moved)
}

fn found<'k>(kept: impl IntoIterator<Item = &'k Kept>, columns: Columns) -> Found {
    let row = |kept: &Kept| {
        let mut row = kept.row.clone();
        if columns == Columns::Lean {
            (row.payload, row.headers) = Default::default();
        }
        row
    };
    Found {
        rows: kept.into_iter().map(row).collect(),
        // No other caller writes any.
        unreadable: Vec::new(),
    }
}

/// All rows of a state, up to so many of each kind.
fn range(by: By, state: State, limit: usize) -> Range {
    Range {
        by,
        state,
        kind: None,
        from: Start::First,
        within: None,
        backwards: false,
        limit,
        bytes: usize::MAX,
    }
}
