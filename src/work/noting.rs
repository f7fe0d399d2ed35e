//! What is noted of what happens to tasks, where that is wanted.

use std::time::Duration;

use crate::history::Line;
use crate::schedule::kernel::Kernel;
use crate::store::{Ending, History, Note};
use crate::work::verdict::next_after;
use crate::{Kind, Task, Timestamp};

/// What is noted of the ends of claims by a check.
const CHECK: &str = "check";

/// How a wake-up goes on.
pub(crate) struct Way {
    /// When it will be overdue.
    pub(crate) look_in: Duration,
    /// How rows keep it; none where nothing is noted.
    pub(crate) sent: Option<String>,
}

impl Kernel {
    /// How the wake-up of a task goes on that is due in `remaining`; of what kind it is, where that is known.
    pub(crate) fn way(&self, kind: Option<&Kind>, remaining: Duration) -> Way {
        if self.history == History::Off {
            let look_in = self.router.look_in(kind, remaining);
            return Way { look_in, sent: None };
        }
        let (look_in, leg) = self.router.way(kind, remaining);
        let sent = leg.map(|leg| leg.text());
        Way { look_in, sent }
    }

    /// What is noted of a transition if at least `from` is.
    pub(crate) fn note<'l>(
        &self,
        from: History,
        sent: Option<String>,
        line: impl FnOnce() -> Line<'l>,
    ) -> Note {
        noted(self.history, from, sent, line)
    }

    /// What is noted of a change by a check.
    pub(crate) fn note_checked(&self, event: &'static str, sent: Option<String>) -> Note {
        self.note(History::Changes, sent, || Line::of(event, CHECK))
    }

    /// What is noted of a hop that a worker records.
    pub(crate) fn note_hop(&self, worker: &str, sent: Option<String>) -> Note {
        self.note(History::All, sent, || Line::of("hop", format!("worker:{worker}")))
    }

    /// What is noted of the end of a claim of a task, where that is known, by whoever has claimed it.
    pub(crate) fn note_end(&self, task: Option<&Task>, ending: &Ending, now: Timestamp) -> Note {
        if self.history == History::Off {
            return Note::default();
        }
        let from = match ending {
            Ending::Done => History::All,
            _ => History::Changes,
        };
        let after = next_after(ending, now);
        let sent = task
            .zip(after)
            .and_then(|(task, after)| self.way(Some(&task.kind), after).sent);
        self.note(from, sent, || ended(task, ending))
    }
}

/// What is noted of the end of a claim by its handler itself, where so much is.
pub(crate) fn note_finished(history: History, task: &Task) -> Note {
    noted(history, History::All, None, || ended(Some(task), &Ending::Done))
}

fn noted<'l>(history: History, from: History, sent: Option<String>, line: impl FnOnce() -> Line<'l>) -> Note {
    if history == History::Off {
        return Note::default();
    }
    let line = |sent: &Option<String>| {
        let wake = sent.as_deref().map(Into::into);
        Line { wake, ..line() }.text()
    };
    let event = (history >= from).then(|| line(&sent));
    // An event says it itself: to say it twice would make each row longer.
    let sent = sent.filter(|_| event.is_none());
    Note { event, sent }
}

fn ended<'e>(task: Option<&Task>, ending: &'e Ending) -> Line<'e> {
    let (event, why) = match ending {
        Ending::Done => ("done", None),
        Ending::Dead { error, .. } => ("dead", Some(error)),
        Ending::Retry { error, .. } => ("retried", Some(error)),
        Ending::Snooze { reason, .. } => ("snoozed", reason.as_ref()),
        Ending::Again { .. } => ("again", None),
        Ending::Release => ("released", None),
        Ending::Moved { .. } => ("moved", None),
        Ending::Cancelled => ("cancelled", None),
    };
    let owner = task.and_then(|task| task.owner.as_ref());
    let by = match (ending, owner) {
        (Ending::Moved { .. } | Ending::Cancelled, _) => CHECK.to_owned(),
        (_, Some(owner)) => format!("worker:{owner}"),
        (_, None) => "worker".to_owned(),
    };
    let no_attempt = matches!(ending, Ending::Dead { give_back: true, .. });
    let attempt = match ending {
        Ending::Dead { .. } | Ending::Retry { .. } => {
            task.map(|task| task.attempt.saturating_sub(u32::from(no_attempt)))
        }
        _ => None,
    };
    Line {
        why: why.map(|why| why.as_str().into()),
        attempt,
        ..Line::of(event, by)
    }
}
