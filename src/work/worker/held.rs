//! A claim that a worker holds.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::attempt::Attempt;
use super::lease::Lease;
use crate::clock::Moment;
use crate::store::Renewal;

/// A claim that this worker holds.
pub(super) struct Held {
    /// What its handler is, or will be.
    pub(super) attempt: Arc<Attempt>,
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
    /// Waiting in its queue, or put off for a while.
    Queued,
    /// Out of the queue: its handler is about to be started, or it is refused.
    Starting,
    /// The store is being told that its handler starts.
    Noting,
    Running {
        handler: AbortHandle,
        /// When its execution timeout ends; no renewal after that.
        until: Option<Instant>,
    },
    Settling {
        /// When it began; or, later, when the store could not renew the claim either.
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

    /// The store is away, so it is not the end of this claim that cannot be settled: the patience with that begins anew.
    pub(super) fn wait_for_store(&mut self, now: Moment) {
        if let Phase::Settling { since, .. } = &mut self.phase {
            *since = now;
        }
    }

    /// By which the store knows the claim.
    pub(super) fn version(&self) -> u64 {
        self.attempt.task.version
    }

    /// How it is renewed, if it is to be: while its handler may still run, and for `patience` while its end is not settled, as
    /// what cannot be settled must not be kept from others for ever; nor must what waits until a handler has come to its end
    /// that `is_stopping`.
    pub(super) fn renewal(&self, now: &Moment, patience: Duration, is_stopping: bool) -> Option<Renewal> {
        let started = match self.phase {
            Phase::Asking | Phase::Queued if is_stopping => return None,
            Phase::Asking | Phase::Queued | Phase::Starting => false,
            Phase::Running {
                until: Some(until), ..
            } if now.instant() >= until => return None,
            Phase::Noting | Phase::Running { .. } => true,
            Phase::Settling { since, .. } if since.until(now) >= patience => return None,
            Phase::Settling { ran, .. } => ran,
        };
        Some(Renewal {
            id: self.attempt.task.id,
            version: self.version(),
            started,
        })
    }

    /// Whether its row may have ended by this worker's own doing.
    pub(super) fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Settling { .. }) || self.attempt.finishing.has_begun()
    }
}
