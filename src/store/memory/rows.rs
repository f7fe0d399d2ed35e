//! The rows and the indexes over them, kept in step.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use crate::{Key, Kind, State, Target, Task, TaskId, Timestamp};

const FIRST_ID: TaskId = TaskId::from_bytes([0; 16]);
const LAST_ID: TaskId = TaskId::from_bytes([0xFF; 16]);

/// Every row, found by id, by key, by `wake_at` and by `due_at`, always in the same order.
#[derive(Default)]
pub(super) struct Rows {
    rows: BTreeMap<TaskId, Task>,
    /// The rows of one state and kind, lanes that are empty left out.
    lanes: BTreeMap<(State, Kind), Lane>,
    /// The live row of a key: at most one.
    live: BTreeMap<(Kind, Key), TaskId>,
    /// Every row that has a key.
    named: BTreeSet<(Kind, Key, TaskId)>,
}

/// The rows of one state and kind, by their times.
#[derive(Default)]
struct Lane {
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

    /// The row of a target; by key its live row, else the newest by id.
    pub(super) fn find(&self, target: &Target) -> Option<&Task> {
        let (kind, key) = match target {
            Target::Id(id) => return self.get(*id),
            Target::Key(kind, key) => (kind, key),
        };
        self.live(kind, key).or_else(|| {
            let first = (kind.clone(), key.clone(), FIRST_ID);
            let last = (kind.clone(), key.clone(), LAST_ID);
            let (.., newest) = self.named.range(first..=last).next_back()?;
            self.get(*newest)
        })
    }

    /// Adds a row whose id is not here yet.
    pub(super) fn add(&mut self, row: Task) {
        if let Some(key) = &row.key {
            self.named.insert((row.kind.clone(), key.clone(), row.id));
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

    pub(super) fn remove(&mut self, id: TaskId) {
        let Some(row) = self.rows.remove(&id) else {
            return;
        };
        self.unindex(&row);
        if let Some(key) = row.key {
            self.named.remove(&(row.kind, key, id));
        }
    }

    /// The kinds that have rows in this state.
    pub(super) fn kinds(&self, state: State) -> Vec<Kind> {
        self.lanes
            .keys()
            .filter(|(of, _)| *of == state)
            .map(|(_, kind)| kind.clone())
            .collect()
    }

    /// The rows of a state and kind whose `wake_at` has passed, the longest ago first.
    pub(super) fn overdue(&self, state: State, kind: &Kind, now: Timestamp) -> impl Iterator<Item = TaskId> {
        let lane = self.lanes.get(&(state, kind.clone()));
        let range = lane.map(|lane| lane.by_wake.range(..=(now, LAST_ID)));
        range.into_iter().flatten().map(|&(_, id)| id)
    }

    /// The scheduled rows of a kind that are due at `time`, the longest due first.
    pub(super) fn due(&self, kind: &Kind, time: Timestamp) -> impl Iterator<Item = TaskId> {
        let lane = self.lanes.get(&(State::Scheduled, kind.clone()));
        let range = lane.map(|lane| lane.by_due.range(..=(time, LAST_ID)));
        range.into_iter().flatten().map(|&(_, id)| id)
    }

    /// The rows of a state and kind by due time and id, after a place in that order.
    pub(super) fn listed(
        &self,
        state: State,
        kind: &Kind,
        after: Option<(Timestamp, TaskId)>,
    ) -> impl Iterator<Item = &Task> {
        let after = after.map_or(Bound::Unbounded, Bound::Excluded);
        let lane = self.lanes.get(&(state, kind.clone()));
        let range = lane.map(|lane| lane.by_due.range((after, Bound::Unbounded)));
        range.into_iter().flatten().filter_map(|&(_, id)| self.get(id))
    }

    fn index(&mut self, row: &Task) {
        let lane = self.lanes.entry((row.state, row.kind.clone())).or_default();
        if let Some(wake_at) = row.wake_at {
            lane.by_wake.insert((wake_at, row.id));
        }
        lane.by_due.insert((row.due_at, row.id));
        if let Some(key) = row.key.as_ref().filter(|_| row.state.is_live()) {
            self.live.insert((row.kind.clone(), key.clone()), row.id);
        }
    }

    fn unindex(&mut self, row: &Task) {
        let place = (row.state, row.kind.clone());
        if let Some(lane) = self.lanes.get_mut(&place) {
            if let Some(wake_at) = row.wake_at {
                lane.by_wake.remove(&(wake_at, row.id));
            }
            lane.by_due.remove(&(row.due_at, row.id));
            if lane.by_due.is_empty() {
                self.lanes.remove(&place);
            }
        }
        if let Some(key) = row.key.as_ref().filter(|_| row.state.is_live()) {
            self.live.remove(&(row.kind.clone(), key.clone()));
        }
    }
}
