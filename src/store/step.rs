//! What a worker does to a row that it holds or sends on its way.

use std::sync::Arc;
use std::time::Duration;

use crate::store::Note;
use crate::task::timestamp::duration;
use crate::{State, Task, TaskId, Timestamp};

/// A transition of a row by a worker that holds it or sends it on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which row.
    pub id: TaskId,
    /// The version that it must have: of a claim, that by which it was claimed.
    pub version: u64,
    /// What happens to it.
    pub event: Event,
    /// What is noted if it does.
    pub note: Note,
    /// The row as it was claimed, if the worker has it: then a store need not read it. Of another version it counts for nothing.
    pub claimed: Option<Arc<Task>>,
}

impl Step {
    /// A hop; its wake-up will be overdue after `overdue_after`.
    pub const fn hop(id: TaskId, version: u64, overdue_after: Duration) -> Self {
        Self::of(id, version, Event::Hop { overdue_after })
    }

    /// The end of a claim.
    pub const fn end(id: TaskId, version: u64, ending: Ending) -> Self {
        Self::of(id, version, Event::End { ending })
    }

    const fn of(id: TaskId, version: u64, event: Event) -> Self {
        let note = Note { event: None };
        Self {
            id,
            version,
            event,
            note,
            claimed: None,
        }
    }

    /// The same, of which this is noted.
    #[must_use]
    pub fn with_note(self, note: Note) -> Self {
        Self { note, ..self }
    }
}

/// What happens to a row that a worker holds or sends on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A scheduled row takes a hop: hop + 1, and a new `wake_at`.
    Hop {
        /// When the next wake-up will be overdue: `wake_at` is this long after now by the store's clock.
        overdue_after: Duration,
    },
    /// The claim of a running row ends.
    End {
        /// How it ended.
        ending: Ending,
    },
}

impl Event {
    /// The state that its row must be in.
    pub const fn needs(&self) -> State {
        match self {
            Self::Hop { .. } => State::Scheduled,
            Self::End { .. } => State::Running,
        }
    }
}

/// How a claim ended. A store has to know all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Done; kept as long as the store keeps what has ended.
    Done,
    /// Dead; kept until it is redriven or dismissed, or as long as [`Keep::dead`](crate::store::Keep::dead) says.
    Dead {
        /// Why, for `last_error`.
        error: String,
        /// Whether the claim was no attempt (the handler was not started), so that it is given back.
        give_back: bool,
    },
    /// Scheduled again after a failed attempt; `planned_at` stays.
    Retry {
        /// Due this long after now.
        after: Duration,
        /// When its wake-up will be overdue, from now.
        overdue_after: Duration,
        /// Why, for `last_error`.
        error: String,
    },
    /// Scheduled again at the handler's wish, the attempt given back; `planned_at` stays.
    Snooze {
        /// Due this long after now.
        after: Duration,
        /// When its wake-up will be overdue, from now.
        overdue_after: Duration,
        /// Why, for `last_error`; none leaves it as it is.
        reason: Option<String>,
    },
    /// Done for this time and scheduled once more: as a new task, but the same row. `planned_at` is the new time.
    Again {
        /// Due this long after now.
        after: Duration,
        /// When its wake-up will be overdue, from now.
        overdue_after: Duration,
    },
    /// Given back as it was, due as before, the attempt given back; `wake_at` is now.
    Release,
    /// Not to run yet: scheduled for another time, as by [`Verb::Reschedule`](crate::store::Verb::Reschedule).
    Moved {
        /// The new time.
        due: Timestamp,
        /// When its wake-up will be overdue, from now.
        overdue_after: Duration,
    },
    /// Not to run at all: cancelled, as by [`Verb::Cancel`](crate::store::Verb::Cancel).
    Cancelled,
}

impl Ending {
    /// The state that it leaves its row in.
    pub(crate) const fn leaves(&self) -> State {
        match self {
            Self::Done => State::Done,
            Self::Dead { .. } => State::Dead,
            Self::Cancelled => State::Cancelled,
            Self::Retry { .. }
            | Self::Snooze { .. }
            | Self::Again { .. }
            | Self::Moved { .. }
            | Self::Release => State::Scheduled,
        }
    }

    /// After how long the task is due again, from now; none if it is not scheduled again, or keeps its due time.
    pub(crate) fn next_after(&self, now: Timestamp) -> Option<Duration> {
        match self {
            Self::Retry { after, .. } | Self::Snooze { after, .. } | Self::Again { after, .. } => {
                Some(*after)
            }
            Self::Moved { due, .. } => Some(duration(due.millis_since(now))),
            Self::Done | Self::Dead { .. } | Self::Release | Self::Cancelled => None,
        }
    }
}
