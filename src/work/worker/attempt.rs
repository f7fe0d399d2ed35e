//! One attempt at a task.

use std::sync::Arc;

use crate::Task;
use crate::backend::WokenBy;
use crate::store::store_time::Reading;
use crate::work::budget::Taken;
use crate::work::handler::Finishing;

/// An attempt at a task, which all parts of a worker hand on from the claim to the settlement.
///
/// Its claim may be lost and taken back while its handler runs: then the store knows it by a later version, which the
/// lane keeps, and the attempt stays the same.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// As it was claimed, and as its handler is given it.
    pub(crate) task: Arc<Task>,
    pub(crate) woken_by: WokenBy,
    /// The time by the store's clock when it was claimed, and the moment of it.
    pub(crate) claimed: Reading,
    pub(crate) finishing: Finishing,
    bytes: Arc<Taken>,
}

impl Attempt {
    pub(crate) fn new(task: Task, woken_by: WokenBy, claimed: Reading, bytes: Taken) -> Arc<Self> {
        Arc::new(Self {
            finishing: Finishing::new(task.version),
            task: Arc::new(task),
            woken_by,
            claimed,
            bytes: Arc::new(bytes),
        })
    }

    /// The attempt that its claim, lost and taken back, is before a handler has begun.
    pub(crate) fn anew(&self, claim: &Arc<Task>) -> Arc<Self> {
        Arc::new(Self {
            task: Arc::clone(claim),
            woken_by: self.woken_by,
            claimed: self.claimed,
            finishing: self.finishing.clone(),
            bytes: Arc::clone(&self.bytes),
        })
    }
}
