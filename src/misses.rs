//! Failures in a row.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::defaults;

/// Tells who takes nothing any more from who was once too busy: counts calls in a row that failed.
///
/// One late confirmation must not send everything another way: what failed is sent elsewhere anyhow.
#[derive(Debug, Default)]
pub(crate) struct Misses(AtomicU32);

impl Misses {
    /// A call has failed, all of it; says whether that is one too many.
    pub(crate) fn missed(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) + 1 >= defaults::UNWELL_AFTER
    }

    /// Nothing is known to be well yet: the next call that fails is one too many.
    #[cfg(feature = "rocketmq")]
    pub(crate) fn on_trial(&self) {
        self.0.store(defaults::UNWELL_AFTER - 1, Ordering::Relaxed);
    }

    /// Something was taken.
    pub(crate) fn took(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}
