//! A claim that a worker holds.

use std::sync::Arc;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::attempt::Attempt;
use super::lease::Lease;
use crate::Task;
use crate::clock::Moment;

/// A claim that this worker holds.
pub(super) struct Held {
    /// What its handler is, or will be.
    pub(super) attempt: Arc<Attempt>,
    /// The task as it was claimed last: later than the attempt, where that was lost and taken back meanwhile.
    pub(super) claim: Arc<Task>,
    pub(super) lease: Lease,
    pub(super) phase: Phase,
    /// When the check of its kind said that it is to run.
    pub(super) passed: Option<Moment>,
    /// Whether the store knows that its handler starts.
    pub(super) noted: bool,
}

pub(super) enum Phase {
    /// The check of its kind is still to say whether it is to run.
    Asking,
    Queued,
    /// The store is being told that its handler starts.
    Noting,
    Running {
        handler: AbortHandle,
        /// When its execution timeout ends; no renewal after that.
        until: Option<Instant>,
    },
    Settling {
        since: Moment,
        /// Whether its handler had been started.
        ran: bool,
    },
}

impl Held {
    pub(super) fn settle(&mut self, since: Moment) {
        let ran = matches!(self.phase, Phase::Running { .. });
        self.phase = Phase::Settling { since, ran };
    }

    /// Whether its handler was started by an earlier claim, which the store counts as its attempt. Then this claim is to be
    /// none: it is given back when it is settled, and when its lease ends as long as no start is noted for it.
    pub(super) fn goes_on(&self) -> bool {
        self.claim.attempt > self.attempt.task.attempt
    }

    /// Whether its row may have ended by this worker's own doing.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Settling { .. }) || self.attempt.finishing.has_begun()
    }

    /// Whether `task` is a claim of the same task right after this one, whose handler has been started: its lease has
    /// ended, which is one transition and a stall, and nothing else has happened to it. What this worker had settled
    /// without having heard of it is another matter.
    pub(super) fn is_followed_by(&self, task: &Task) -> bool {
        matches!(
            self.phase,
            Phase::Running { .. } | Phase::Settling { ran: true, .. }
        ) && task.version == self.claim.version + 2
            && task.stalls == self.claim.stalls + 1
    }
}
