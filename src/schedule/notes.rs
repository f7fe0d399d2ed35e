//! What is noted of what happens to tasks, where that is wanted.

use std::time::Duration;

use super::kernel::Kernel;
use crate::store::line::{CHECK, Line};
use crate::store::{Ending, History, Note};
use crate::{Kind, Task, Timestamp};

/// How a wake-up goes on.
pub(crate) struct Way {
    /// When it will be overdue.
    pub(crate) overdue_after: Duration,
    /// How histories tell of it; none where nothing is noted.
    pub(crate) sent: Option<String>,
}

impl Kernel {
    /// How the wake-up of a task goes on that is due in `remaining`; of what kind it is, where that is known.
    pub(crate) fn way(&self, kind: Option<&Kind>, remaining: Duration) -> Way {
        if self.histories().of_perhaps(kind) == History::Off {
            let overdue_after = self.router.overdue_after(kind, remaining);
            return Way {
                overdue_after,
                sent: None,
            };
        }
        let (overdue_after, leg) = self.router.way(kind, remaining);
        let sent = leg.map(|leg| leg.text());
        Way { overdue_after, sent }
    }

    /// What is noted of a transition if at least `from` is; of what kind the task is, where that is known.
    pub(crate) fn note<'l>(
        &self,
        kind: Option<&Kind>,
        from: History,
        sent: Option<String>,
        line: impl FnOnce() -> Line<'l>,
    ) -> Note {
        Note::kept(self.histories().of_perhaps(kind), from, sent, line)
    }

    /// What is noted of a change by the check of a kind.
    pub(crate) fn note_checked(&self, kind: &Kind, event: &'static str, sent: Option<String>) -> Note {
        self.note(Some(kind), History::Changes, sent, || Line::of(event, CHECK))
    }

    /// What is noted of a hop that a worker records.
    pub(crate) fn note_hop(&self, kind: &Kind, worker: &str, sent: Option<String>) -> Note {
        self.note(Some(kind), History::All, sent, || {
            Line::of("hop", format!("worker:{worker}"))
        })
    }

    /// What is noted of the end of a claim of a task, where that is known, by the worker that has claimed it.
    pub(crate) fn note_end(&self, task: Option<&Task>, ending: &Ending, now: Timestamp) -> Note {
        let kind = task.map(|task| &task.kind);
        if self.histories().of_perhaps(kind) == History::Off {
            return Note::default();
        }
        let from = match ending {
            Ending::Done => History::All,
            _ => History::Changes,
        };
        let after = ending.next_after(now);
        let sent = task
            .zip(after)
            .and_then(|(task, after)| self.way(Some(&task.kind), after).sent);
        self.note(kind, from, sent, || Line::ended(task, ending))
    }
}
