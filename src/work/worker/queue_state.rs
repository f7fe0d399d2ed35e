//! The claims of one queue, each in its phase.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::attempt::Attempt;
use super::held::{Held, Phase};
use crate::TaskId;
use crate::clock::Moment;
use crate::store::Renewal;

/// Holds the claims of one queue: which wait, in which order, and which run.
#[derive(Default)]
pub(super) struct QueueState {
    /// Places kept for claims that have been sent to the store.
    pub(super) reserved: usize,
    pub(super) claims: BTreeMap<TaskId, Held>,
    /// Those not started, the oldest claim first, but for those that were put off.
    pub(super) waiting: VecDeque<TaskId>,
    /// How many starts are being noted.
    pub(super) noting: usize,
    /// Handlers that were told to stop and have not come to an end, by the versions of their attempts. Nothing else is
    /// started for their tasks.
    pub(super) stopping: BTreeSet<(TaskId, u64)>,
    /// Whether the store may have due tasks for which there was no room.
    pub(super) backlog: bool,
    /// Whether nothing is to be claimed or started.
    pub(super) paused: bool,
}

impl QueueState {
    /// The claim of an attempt, unless it is another's by now.
    pub(super) fn held(&mut self, attempt: &Arc<Attempt>) -> Option<&mut Held> {
        self.claims
            .get_mut(&attempt.task.id)
            .filter(|held| Arc::ptr_eq(&held.attempt, attempt))
    }

    /// The claim of an attempt, not noted any more, if it was until now; it is in no queue yet.
    pub(super) fn end_noting(&mut self, attempt: &Arc<Attempt>) -> Option<&mut Held> {
        let held = self.held(attempt)?;
        if !matches!(held.phase, Phase::Noting) {
            return None;
        }
        held.phase = Phase::Queued;
        self.noting -= 1;
        self.held(attempt)
    }

    /// The claim that is renewed, unless it is another by now.
    pub(super) fn claimed(&mut self, renewal: &Renewal) -> Option<&mut Held> {
        let held = self.claims.get_mut(&renewal.id)?;
        (held.version() == renewal.version).then_some(held)
    }

    /// The claim of an attempt, if its check is still to say whether it is to run.
    pub(super) fn asking(&mut self, attempt: &Arc<Attempt>) -> Option<&mut Held> {
        self.held(attempt)
            .filter(|held| matches!(held.phase, Phase::Asking))
    }

    /// Whether a handler of a task was told to stop and has not come to an end.
    pub(super) fn is_stopping(&self, id: TaskId) -> bool {
        self.stopping.range((id, 0)..=(id, u64::MAX)).next().is_some()
    }

    /// The claims that are to be renewed, and how.
    pub(super) fn renewable(
        &self,
        now: &Moment,
        patience: Duration,
    ) -> impl Iterator<Item = (&Held, Renewal)> {
        self.claims.iter().filter_map(move |(&id, held)| {
            let renewal = held.renewal(now, patience, self.is_stopping(id))?;
            Some((held, renewal))
        })
    }

    /// Takes a claim out, and stops its handler if that runs.
    pub(super) fn forget(&mut self, id: TaskId) {
        let Some(held) = self.claims.remove(&id) else {
            return;
        };
        match &held.phase {
            Phase::Running { handler, .. } => {
                handler.abort();
                self.stopping.insert((id, held.version()));
            }
            // Left here it would start its task a second time, should this worker claim it again.
            Phase::Queued => self.waiting.retain(|&queued| queued != id),
            Phase::Noting => self.noting -= 1,
            Phase::Asking | Phase::Starting | Phase::Settling { .. } => {}
        }
    }
}
