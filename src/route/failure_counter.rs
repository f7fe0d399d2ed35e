//! Failures in a row.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::defaults;

/// Counts calls in a row that failed, to tell a backend that is down from one that was once too busy.
///
/// One late confirmation must not send everything another way: what failed is sent elsewhere anyhow.
#[derive(Debug, Default)]
pub(crate) struct FailureCounter(AtomicU32);

impl FailureCounter {
    /// A call has failed, all of it; says whether that is one too many.
    pub(crate) fn failed(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) + 1 >= defaults::UNWELL_AFTER
    }

    /// Something was taken.
    pub(crate) fn succeeded(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
