//! A claim that a worker holds.

use std::sync::Arc;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::budget::Taken;
use super::lease::Lease;
use crate::clock::Moment;
use crate::handler::Finishing;
use crate::retry::Policy;
use crate::store_time::Reading;
use crate::{Task, WokenBy};

/// A claim that this worker holds.
pub(super) struct Held {
    /// As it was claimed last.
    pub(super) task: Arc<Task>,
    /// The version by which its handler knows it: an older one, where the claim was lost and taken back meanwhile.
    pub(super) known_as: u64,
    pub(super) woken_by: WokenBy,
    pub(super) finishing: Finishing,
    pub(super) lease: Lease,
    /// The time by the store's clock when it was claimed, and the moment of it.
    pub(super) claimed: Reading,
    pub(super) phase: Phase,
    /// When the check of its kind said that it is to run.
    pub(super) passed: Option<Moment>,
    /// Whether the store knows that its handler starts.
    pub(super) noted: bool,
    pub(super) _bytes: Taken,
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

    /// Whether its row may have ended by this worker's own doing.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Settling { .. }) || self.finishing.has_begun()
    }

    /// Whether `task` is a claim of the same task right after this one, whose handler has been started: its lease has
    /// ended, which is one transition and a stall, and nothing else has happened to it. What this worker had settled
    /// without having heard of it is another matter.
    pub(super) fn is_followed_by(&self, task: &Task) -> bool {
        matches!(
            self.phase,
            Phase::Running { .. } | Phase::Settling { ran: true, .. }
        ) && task.version == self.task.version + 2
            && task.stalls == self.task.stalls + 1
    }
}

/// Whether the store has to know of a start before it happens: if the worker may die of it, or if there may be no other.
///
/// Of all others it learns by the first renewal: to tell it each time would be one more write for every task. What ends
/// before is settled, and where the worker dies before, the end of the lease gives the attempt back, once.
pub(super) fn needs_note(task: &Task, policy: &Policy) -> bool {
    task.stalls > 0 || task.attempt >= task.max_attempts.unwrap_or(policy.max_attempts)
}
