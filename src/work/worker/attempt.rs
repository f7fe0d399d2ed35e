//! One attempt at a task.

use std::sync::Arc;

use crate::Task;
use crate::backend::WokenBy;
use crate::store::store_time::ClockSample;
use crate::work::budget::ReservedBytes;
use crate::work::handler::Finishing;

/// An attempt at a task, which all parts of a worker hand on from the claim to the settlement.
#[derive(Debug)]
pub(crate) struct Attempt {
    /// As it was claimed, and as its handler is given it.
    pub(crate) task: Arc<Task>,
    pub(crate) woken_by: WokenBy,
    /// The time by the store's clock when it was claimed, and the moment of it.
    pub(crate) claimed: ClockSample,
    pub(crate) finishing: Finishing,
    _bytes: ReservedBytes,
}

impl Attempt {
    pub(crate) fn new(
        task: Task,
        woken_by: WokenBy,
        claimed: ClockSample,
        bytes: ReservedBytes,
    ) -> Arc<Self> {
        Arc::new(Self {
            finishing: Finishing::default(),
            task: Arc::new(task),
            woken_by,
            claimed,
            _bytes: bytes,
        })
    }

    /// One at a task that was claimed just now, of no weight.
    #[cfg(test)]
    pub(super) fn claimed_now(task: Task, clock: &crate::clock::Clock) -> Arc<Self> {
        use crate::store::store_time::Timed;
        use crate::work::budget::Budget;

        let (now, at) = (clock.now(), clock.instant());
        let claimed = ClockSample::just_taken(&Timed { now, at, found: () }, at);
        Self::new(task, WokenBy::Sweep, claimed, Budget::new(0).take(0))
    }
}
