//! Records what happened, to be counted at the end.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use delayline::{Task, TaskId, Timestamp};
use tracing::info;

use crate::Error;

/// Records for every feeding when the pet was to be hungry, and how often it was.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pages: Mutex<Pages>,
}

#[derive(Debug, Default)]
struct Pages {
    /// By task: a pet that is fed while it is not hungry keeps its task, with another time.
    feedings: BTreeMap<TaskId, Feeding>,
    counted: usize,
    back: usize,
    failures: Vec<String>,
}

#[derive(Debug)]
struct Feeding {
    /// The version of the row in the last answer, and when it was due then.
    version: u64,
    due_at: Timestamp,
    hungry: Vec<Timestamp>,
}

impl Ledger {
    pub(crate) fn fed(&self, task: &Task) {
        self.changed(task);
    }

    pub(crate) fn card_counted(&self, task: &Task) {
        self.changed(task);
        self.pages().counted += 1;
    }

    pub(crate) fn card_back(&self) {
        self.pages().back += 1;
    }

    pub(crate) fn failed(&self, failure: String) {
        self.pages().failures.push(failure);
    }

    /// Records that the handler was called with this row.
    pub(crate) fn hungry(&self, task: &Task) {
        let mut pages = self.pages();
        let due_at = task.due_at;
        let feeding = pages.feedings.entry(task.id).or_insert_with(|| Feeding {
            version: 0,
            due_at,
            hungry: Vec::new(),
        });
        feeding.hungry.push(due_at);
    }

    /// Records an answer. Answers to players who act at the same moment arrive in any order: the version says which is
    /// the last.
    fn changed(&self, task: &Task) {
        let mut pages = self.pages();
        let feeding = pages.feedings.entry(task.id).or_insert_with(|| Feeding {
            version: 0,
            due_at: task.due_at,
            hungry: Vec::new(),
        });
        if feeding.version < task.version {
            feeding.version = task.version;
            feeding.due_at = task.due_at;
        }
    }

    /// Says whether every fed pet has been hungry.
    pub(crate) fn is_complete(&self) -> bool {
        self.pages()
            .feedings
            .values()
            .all(|feeding| !feeding.hungry.is_empty())
    }

    /// Reports the result, and fails if it is wrong.
    pub(crate) fn settle(&self) -> Result<(), Error> {
        let pages = self.pages();
        let once = |feeding: &Feeding| feeding.hungry == [feeding.due_at];
        let wrong = pages.feedings.values().filter(|feeding| !once(feeding)).count();
        info!(
            feedings = pages.feedings.len(),
            cards_counted = pages.counted,
            cards_back = pages.back,
            "everybody is hungry"
        );
        if wrong == 0 && pages.failures.is_empty() {
            return Ok(());
        }
        let failures = &pages.failures;
        Err(format!("{wrong} were not hungry once, at their time; {failures:?}").into())
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
