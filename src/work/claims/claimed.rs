//! What a claimant is given.

use std::sync::Arc;

use super::ClaimId;
use crate::Task;
use crate::work::budget::ReservedBytes;

/// A task that was claimed, and by what its claim is known.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claimed {
    /// Ends or extends the claim, from whatever process.
    pub claim: ClaimId,
    /// The task as it was claimed. Its lease ends at [`wake_at`](Task::wake_at), by the store's clock.
    pub task: Task,
    /// The bytes of its payload, as long as this or a clone is there.
    _bytes: Arc<ReservedBytes>,
}

impl Claimed {
    pub(super) fn new(task: Task, bytes: ReservedBytes) -> Self {
        Self {
            claim: ClaimId::of(&task),
            task,
            _bytes: Arc::new(bytes),
        }
    }
}

impl PartialEq for Claimed {
    fn eq(&self, other: &Self) -> bool {
        (self.claim, &self.task) == (other.claim, &other.task)
    }
}

impl Eq for Claimed {}
