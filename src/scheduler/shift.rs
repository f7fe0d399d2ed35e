//! Moving a task by a span.

use std::time::Duration;

use crate::Timestamp;
use crate::timestamp::millis;

/// By how much a task is moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Shift {
    /// This much later.
    Later(Duration),
    /// This much earlier.
    Earlier(Duration),
}

impl Shift {
    pub(super) fn from(self, due: Timestamp) -> Timestamp {
        match self {
            // Not cut off at the last moment there is: that is refused, as any other time beyond it.
            Self::Later(by) => Timestamp::from_millis(due.as_millis().saturating_add(millis(by))),
            Self::Earlier(by) => due.shifted(millis(by).saturating_neg()),
        }
    }
}
