//! What waits to be asked about, of one kind.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::attempt::Attempt;
use crate::expected::Check;
use crate::store::Pending;
use crate::{Key, Kind, TaskId, Timestamp, defaults};

/// Gathers the tasks of one kind that its check is to be asked about, a bounded number of them.
pub(crate) struct CheckQueue {
    pub(crate) kind: Kind,
    pub(crate) check: Check,
    waiting: Mutex<Waiting>,
    came: Notify,
    /// The waiting rows that were given have been taken.
    taken: Notify,
}

#[derive(Default)]
struct Waiting {
    /// Rows that are due and wait for room: a page of them.
    due: Vec<Pending>,
    /// As many as their queue has room for.
    claimed: VecDeque<(Key, Arc<Attempt>)>,
    /// Up to [`defaults::UNASKED`], the soonest due first. The sweep may bring one again that is here already.
    early: BTreeMap<(Timestamp, TaskId), (Key, Pending)>,
}

/// What is asked about at once.
#[derive(Default)]
pub(crate) struct Asked {
    /// First those of `claimed`, then those of `due`, then those of `early`.
    pub(crate) keys: Vec<Key>,
    pub(crate) claimed: Vec<Arc<Attempt>>,
    pub(crate) due: Vec<Pending>,
    pub(crate) early: Vec<Pending>,
}

impl CheckQueue {
    pub(crate) fn new(kind: Kind, check: Check) -> Self {
        Self {
            kind,
            check,
            waiting: Mutex::default(),
            came: Notify::new(),
            taken: Notify::new(),
        }
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in claims that their queue holds as not asked about yet.
    pub(crate) fn add_claimed(&self, attempts: Vec<Arc<Attempt>>) {
        let keyed = attempts
            .into_iter()
            .filter_map(|attempt| Some((attempt.task.key.clone()?, attempt)));
        self.waiting().claimed.extend(keyed);
        self.came.notify_one();
    }

    /// Takes in a row that is not due yet; says whether there was room for it.
    pub(crate) fn add_early(&self, key: Key, row: Pending) -> bool {
        let mut waiting = self.waiting();
        let place = (row.due_at, row.wake.id);
        if waiting.early.len() >= defaults::UNASKED && !waiting.early.contains_key(&place) {
            return false;
        }
        waiting.early.insert(place, (key, row));
        self.came.notify_one();
        true
    }

    /// Takes in rows that are due and wait for room; ends when they are being asked about. One caller at a time.
    pub(crate) async fn ask_about_waiting(&self, rows: Vec<Pending>) {
        if rows.is_empty() {
            return;
        }
        self.waiting().due = rows;
        self.came.notify_one();
        self.taken.notified().await;
    }

    /// Waits until there is something to ask about, and takes up to [`defaults::BATCH`] of it.
    pub(crate) async fn next(&self) -> Asked {
        loop {
            let asked = self.take();
            if !asked.keys.is_empty() {
                return asked;
            }
            self.came.notified().await;
        }
    }

    fn take(&self) -> Asked {
        let mut waiting = self.waiting();
        // A page of them, whatever else there is: else a backlog, which is when they matter, would keep them out.
        let due = std::mem::take(&mut waiting.due);
        // Claims are due; but however many there are, half of the places are for the others.
        let most = defaults::BATCH - waiting.early.len().min(defaults::BATCH / 2);
        let count = waiting.claimed.len().min(most.saturating_sub(due.len()));
        let mut asked = Asked::default();
        for (key, attempt) in waiting.claimed.drain(..count) {
            asked.keys.push(key);
            asked.claimed.push(attempt);
        }
        if !due.is_empty() {
            asked.keys.extend(due.iter().filter_map(|row| row.key.clone()));
            asked.due = due;
            self.taken.notify_one();
        }
        while asked.keys.len() < defaults::BATCH
            && let Some((_, (key, row))) = waiting.early.pop_first()
        {
            asked.keys.push(key);
            asked.early.push(row);
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Task;
    use crate::backend::Wake;
    use crate::clock::Clock;

    fn early(number: u16, version: u64) -> (Key, Pending) {
        let mut id = [0; 16];
        id[..2].copy_from_slice(&number.to_be_bytes());
        let due_at = Timestamp::from_millis(i64::from(number));
        let key = Key::from(number.to_string());
        let row = Pending {
            wake: Wake {
                id: TaskId::from_bytes(id),
                kind: "k".into(),
                version,
            },
            key: Some(key.clone()),
            due_at,
            planned_at: due_at,
        };
        (key, row)
    }

    fn check_queue() -> CheckQueue {
        let check = Check::new(async |_| Ok(Vec::new()));
        CheckQueue::new("k".into(), check)
    }

    #[test]
    fn a_bounded_number_waits_and_what_comes_again_needs_no_place() {
        let check_queue = check_queue();
        let add = |number, version| {
            let (key, row) = early(number, version);
            check_queue.add_early(key, row)
        };
        for number in 0..10_000 {
            assert!(add(number, 1));
        }
        assert!(!add(10_000, 1));
        assert!(add(0, 2));
        let asked = check_queue.take();
        assert_eq!((asked.keys.len(), asked.early.len()), (500, 500));
        // The soonest due first, as it was seen last.
        assert_eq!(asked.early[0], early(0, 2).1);
        assert_eq!(asked.early[499], early(499, 1).1);
        assert_eq!(asked.keys[499].as_str(), "499");
        assert!(add(10_000, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_than_a_batch_is_asked_about_at_once() {
        let clock = Clock::simulated(1);
        let check_queue = check_queue();
        let claim = |number| {
            let (key, row) = early(number, 1);
            let task = Task {
                key: Some(key),
                ..Task::blank(row.wake.id, row.wake.kind)
            };
            Attempt::claimed_now(task, &clock)
        };
        check_queue.add_claimed((0..600).map(claim).collect());
        check_queue.waiting().due = (600..700).map(|number| early(number, 1).1).collect();
        let count = |asked: &Asked| (asked.keys.len(), asked.claimed.len(), asked.due.len());
        let asked = check_queue.take();
        assert_eq!(count(&asked), (500, 400, 100));
        let keys = |range: std::ops::Range<usize>| asked.keys[range].iter().map(Key::as_str);
        assert!(keys(399..401).eq(["399", "600"]));
        assert_eq!(count(&check_queue.take()), (200, 200, 0));
    }
}
