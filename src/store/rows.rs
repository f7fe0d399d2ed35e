//! Keeps rows in memory, with the indexes over them: the memory store all of its rows, the engine those that a batch may
//! touch.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::table::{By, Write};
use super::{Note, Noted, Target};
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

pub(super) const FIRST_ID: TaskId = TaskId::from_bytes([0; 16]);
const LAST_ID: TaskId = TaskId::from_bytes([0xFF; 16]);
pub(super) const LAST_TIME: Timestamp = Timestamp::from_millis(i64::MAX);

/// Every row, found by id, by key, by `wake_at` and by `due_at`, always in the same order.
#[derive(Default)]
pub(super) struct Rows {
    rows: BTreeMap<TaskId, Task>,
    /// The rows of one state and kind, empty queues left out.
    queues: BTreeMap<(State, Kind), Queue>,
    /// The live row of a key: at most one.
    live: BTreeMap<(Kind, Key), TaskId>,
    /// What was noted of rows, those of which nothing was left out.
    noted: BTreeMap<TaskId, Noted>,
    /// Every row that has a key, by when it was written.
    named: BTreeSet<(Kind, Key, Timestamp, TaskId)>,
}

/// The rows of one state and kind, by their times.
#[derive(Default)]
struct Queue {
    /// Those that have a `wake_at`.
    by_wake: BTreeSet<(Timestamp, TaskId)>,
    by_due: BTreeSet<(Timestamp, TaskId)>,
}

impl Rows {
    pub(super) fn get(&self, id: TaskId) -> Option<&Task> {
        self.rows.get(&id)
    }

    /// The row under a key that is scheduled or running.
    pub(super) fn live(&self, kind: &Kind, key: &Key) -> Option<&Task> {
        self.get(*self.live.get(&(kind.clone(), key.clone()))?)
    }

    /// The row of a target; by key its live row, else the newest.
    pub(super) fn find(&self, target: &Target) -> Option<&Task> {
        let (kind, key) = match target {
            Target::Id(id) => return self.get(*id),
            Target::Key(kind, key) => (kind, key),
        };
        self.live(kind, key).or_else(|| {
            let first = (kind.clone(), key.clone(), Timestamp::MIN, FIRST_ID);
            let last = (kind.clone(), key.clone(), LAST_TIME, LAST_ID);
            let (.., newest) = self.named.range(first..=last).next_back()?;
            self.get(*newest)
        })
    }

    /// The first time after `now` that a scheduled row is due, or the lease of a running one ends.
    pub(super) fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        let after = (Bound::Excluded((now, LAST_ID)), Bound::Unbounded);
        let first = self.queues.iter().filter_map(|((state, _), queue)| match state {
            State::Scheduled => queue.by_due.range(after).next(),
            State::Running => queue.by_wake.range(after).next(),
            State::Done | State::Dead | State::Cancelled => None,
        });
        first.map(|&(time, _)| time).min()
    }

    /// Adds rows that are kept elsewhere; those that are here already stay as they are.
    pub(super) fn load(&mut self, rows: impl IntoIterator<Item = Task>) {
        for row in rows {
            if self.get(row.id).is_none() {
                self.add(row);
            }
        }
    }

    /// Adds a row whose id is not here yet.
    pub(super) fn add(&mut self, row: Task) {
        if let Some(key) = &row.key {
            self.named
                .insert((row.kind.clone(), key.clone(), row.created_at, row.id));
        }
        self.index(&row);
        self.rows.insert(row.id, row);
    }

    /// Changes a row in place; gives the row as it is then. Its id, kind and key never change.
    pub(super) fn change(&mut self, id: TaskId, change: impl FnOnce(&mut Task)) -> Option<&Task> {
        let mut row = self.rows.remove(&id)?;
        self.unindex(&row);
        change(&mut row);
        self.index(&row);
        Some(self.rows.entry(id).or_insert(row))
    }

    /// One transition, of which this is noted.
    pub(super) fn enter(
        &mut self,
        id: TaskId,
        now: Timestamp,
        note: &Note,
        change: impl FnOnce(&mut Task),
    ) -> Option<&Task> {
        let before = self.get(id)?.due_at;
        self.change(id, change);
        self.note(id, now, note, Some(before));
        self.get(id)
    }

    /// Notes what has been made of a row that was due then before.
    pub(super) fn note(&mut self, id: TaskId, now: Timestamp, note: &Note, before: Option<Timestamp>) {
        if let Some(row) = self.rows.get(&id)
            && note.event.is_some()
        {
            self.noted.entry(id).or_default().add(note, row, now, before);
        }
    }

    /// What was noted of a row.
    pub(super) fn noted(&self, id: TaskId) -> Option<&Noted> {
        self.noted.get(&id)
    }

    /// Adds to what was noted of a row.
    pub(super) fn add_noted(&mut self, id: TaskId, noted: &Noted) {
        if !noted.history.is_empty() {
            self.noted.entry(id).or_default().append(noted);
        }
    }

    /// Writes what has become of a row, if it is as it was, and no second live one of its key; says whether it did.
    pub(super) fn write(&mut self, write: &Write) -> bool {
        let new = &write.row;
        let Some(old) = self.get(new.id) else {
            return false;
        };
        let is_as_it_was = old.version == write.before.version
            && (!write.guards_wake || old.wake_at == write.before.wake_at);
        let live = new.key.as_ref().and_then(|key| self.live(&new.kind, key));
        let is_second = new.state.is_live() && live.is_some_and(|live| live.id != new.id);
        if !is_as_it_was || is_second {
            return false;
        }
        self.change(new.id, |row| {
            let old = std::mem::replace(row, new.clone());
            if !write.refill {
                row.payload = old.payload;
                row.headers = old.headers;
                row.max_attempts = old.max_attempts;
            }
        });
        self.add_noted(new.id, &write.noted);
        true
    }

    pub(super) fn remove(&mut self, id: TaskId) {
        self.noted.remove(&id);
        let Some(row) = self.rows.remove(&id) else {
            return;
        };
        self.unindex(&row);
        if let Some(key) = row.key {
            self.named.remove(&(row.kind, key, row.created_at, id));
        }
    }

    /// The kinds that have rows in this state.
    pub(super) fn kinds(&self, state: State) -> Vec<Kind> {
        self.queues
            .keys()
            .filter(|(of, _)| *of == state)
            .map(|(_, kind)| kind.clone())
            .collect()
    }

    /// The rows of a state and kind between two places in the order of one of their times, that of the end included.
    pub(super) fn between(
        &self,
        by: By,
        state: State,
        kind: &Kind,
        from: Bound<(Timestamp, TaskId)>,
        until: Timestamp,
    ) -> impl DoubleEndedIterator<Item = &Task> {
        let queue = self.queues.get(&(state, kind.clone()));
        let times = queue.map(|queue| match by {
            By::Due => &queue.by_due,
            By::Wake => &queue.by_wake,
        });
        let is_before = |(time, _): (Timestamp, TaskId)| time <= until;
        let is_span = match from {
            Bound::Included(from) | Bound::Excluded(from) => is_before(from),
            Bound::Unbounded => true,
        };
        let span = (from, Bound::Included((until, LAST_ID)));
        let range = times.filter(|_| is_span).map(|times| times.range(span));
        range.into_iter().flatten().filter_map(|&(_, id)| self.get(id))
    }

    fn index(&mut self, row: &Task) {
        let queue = self.queues.entry((row.state, row.kind.clone())).or_default();
        if let Some(wake_at) = row.wake_at {
            queue.by_wake.insert((wake_at, row.id));
        }
        queue.by_due.insert((row.due_at, row.id));
        if let Some(key) = row.key.as_ref().filter(|_| row.state.is_live()) {
            self.live.insert((row.kind.clone(), key.clone()), row.id);
        }
    }

    fn unindex(&mut self, row: &Task) {
        let place = (row.state, row.kind.clone());
        if let Some(queue) = self.queues.get_mut(&place) {
            if let Some(wake_at) = row.wake_at {
                queue.by_wake.remove(&(wake_at, row.id));
            }
            queue.by_due.remove(&(row.due_at, row.id));
            if queue.by_due.is_empty() {
                self.queues.remove(&place);
            }
        }
        if let Some(key) = row.key.as_ref().filter(|_| row.state.is_live()) {
            self.live.remove(&(row.kind.clone(), key.clone()));
        }
    }
}
