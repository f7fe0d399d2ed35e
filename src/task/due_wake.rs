//! Carries a wake-up with the moment at which its task is due.

use std::time::Duration;

use tokio::time::Instant;

use super::timestamp::{duration, millis};
use super::wake::Wake;

/// A wake-up on its way, and when its task is due by the monotonic clock.
#[derive(Clone, Debug)]
pub(crate) struct DueWake {
    pub(crate) wake: Wake,
    pub(crate) due: Instant,
}

impl DueWake {
    /// Returns how long until the task is due, in whole ms, as the rows have it.
    pub(crate) fn remaining(&self, now: Instant) -> Duration {
        duration(millis(self.due.saturating_duration_since(now)))
    }
}
