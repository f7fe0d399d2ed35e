//! What a claimant is given.

use super::ClaimId;
use crate::Task;

/// A task that was claimed, and by what its claim is known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Claimed {
    /// Ends or extends the claim, from whatever process.
    pub claim: ClaimId,
    /// The task as it was claimed. Its lease ends at [`wake_at`](Task::wake_at), by the store's clock.
    pub task: Task,
}

impl Claimed {
    pub(super) fn new(task: Task) -> Self {
        Self {
            claim: ClaimId::of(&task),
            task,
        }
    }
}
