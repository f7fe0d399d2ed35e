//! Counts failures in a row.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::defaults;

/// Counts failed calls in a row, to tell a backend that is down from one that was too busy once.
///
/// One late confirmation must not send everything another way: the wake-ups of a failed call are sent elsewhere anyhow.
#[derive(Debug, Default)]
pub(crate) struct FailureCounter(AtomicU32);

impl FailureCounter {
    /// Records a call that failed as a whole; says whether that is one too many.
    pub(crate) fn failed(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) + 1 >= defaults::UNWELL_AFTER
    }

    /// Records that the backend took something.
    pub(crate) fn succeeded(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
