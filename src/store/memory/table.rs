//! Keeps rows in memory, as a table for the engine.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use crate::clock::Clock;
use crate::store::rows::{FIRST_ID, LAST_TIME, Rows};
use crate::store::table::{By, Columns, Found, Outcome, Range, Start, Table, Write, lean};
use crate::store::{NewRow, Noted, Stamped, Target};
use crate::task::timestamp::millis;
use crate::{Error, Key, Kind, State, Task, TaskId, Timestamp};

/// Rows that every clone shares. Each call is one step under one lock.
#[derive(Clone)]
pub(in crate::store) struct MemoryTable {
    rows: Arc<Mutex<Rows>>,
    clock: Clock,
}

impl MemoryTable {
    pub(in crate::store) fn new(clock: Clock) -> Self {
        let rows = Arc::default();
        Self { rows, clock }
    }

    /// The rows, and the time at which they are this caller's: read under the lock, as a server reads it in the
    /// statement.
    fn look(&self) -> (MutexGuard<'_, Rows>, Timestamp) {
        // No step leaves rows half changed unless it panics; and then they are still the best there is.
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        (rows, now)
    }

    pub(in crate::store) fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        self.look().0.next_look(now)
    }
}

#[async_trait]
impl Table for MemoryTable {
    fn name(&self) -> &'static str {
        "memory"
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
        let (rows, now) = self.look();
        let by_id = ids.iter().filter_map(|id| rows.get(*id));
        let by_key = keys
            .iter()
            .filter_map(|(kind, key)| rows.find(&Target::Key(kind.clone(), key.clone())));
        let found = found(by_id.chain(by_key), columns);
        Ok(Stamped { now, found })
    }

    async fn range(&self, ranges: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        let (rows, now) = self.look();
        let each = ranges
            .iter()
            .map(|range| found(in_range(&rows, range, now), columns));
        let found = each.collect();
        Ok(Stamped { now, found })
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let (rows, now) = self.look();
        let count = |span: &Duration| {
            let due = rows.between(By::Due, state, kind, Bound::Unbounded, now.after(*span));
            due.take(most).count()
        };
        let found = spans.iter().map(count).collect();
        Ok(Stamped { now, found })
    }

    async fn insert(&self, new: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        let (mut rows, now) = self.look();
        let insert = |new: &NewRow| {
            let live = new.key.as_ref().and_then(|key| rows.live(&new.kind, key));
            if live.is_some() || rows.get(new.id).is_some() {
                return Outcome::Lost;
            }
            let (row, noted) = new.row(now);
            rows.add(row);
            rows.add_noted(new.id, &noted);
            Outcome::Written
        };
        let found = new.iter().map(insert).collect();
        Ok(Stamped { now, found })
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        let (mut rows, _) = self.look();
        let write = |write| Outcome::of(rows.write(write));
        Ok(writes.iter().map(write).collect())
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error> {
        let (mut rows, now) = self.look();
        let mut past: BTreeMap<Kind, Vec<TaskId>> = BTreeMap::new();
        for &state in states {
            for row in in_range(&rows, &Range::overdue(state, limit), now) {
                let of_kind = past.entry(row.kind.clone()).or_default();
                if of_kind.len() < limit {
                    of_kind.push(row.id);
                }
            }
        }
        let removed = past.into_values().flatten().map(|id| rows.remove(id));
        Ok(removed.count() as u64)
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        let (rows, _) = self.look();
        let kinds = rows.kinds(state).into_iter();
        let kinds = kinds.filter(|kind| after.is_none_or(|after| kind > after));
        Ok(kinds.take(limit).collect())
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        let (rows, _) = self.look();
        Ok(rows.noted(id).cloned().unwrap_or_default())
    }
}

fn in_range<'r>(rows: &'r Rows, range: &'r Range, now: Timestamp) -> impl Iterator<Item = &'r Task> {
    let kinds = match &range.kind {
        Some(kind) => vec![kind.clone()],
        None => rows.kinds(range.state),
    };
    let from = match range.from {
        Start::First => Bound::Unbounded,
        Start::Ago(ago) => Bound::Included((now.shifted(-millis(ago)), FIRST_ID)),
        Start::After(time, id) => Bound::Excluded((time, id)),
    };
    let until = range.within.map_or(LAST_TIME, |within| now.after(within));
    kinds.into_iter().flat_map(move |kind| {
        let mut lane = rows.between(range.by, range.state, &kind, from, until);
        let next = move || match range.backwards {
            true => lane.next_back(),
            false => lane.next(),
        };
        let mut bytes = 0_usize;
        let fits = |row: &&Task| {
            let fits = bytes < range.bytes;
            bytes = bytes.saturating_add(row.payload.len());
            fits
        };
        let found = std::iter::from_fn(next).take(range.limit).take_while(fits);
        found.collect::<Vec<_>>()
    })
}

fn found<'r>(rows: impl Iterator<Item = &'r Task>, columns: Columns) -> Found {
    let copy = |row: &Task| match columns {
        Columns::All => row.clone(),
        Columns::Lean => lean(row),
    };
    Found::of(rows.map(copy).collect())
}
