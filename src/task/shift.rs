//! Moves a task by a span.

use std::time::Duration;

use super::timestamp::millis;
use crate::Timestamp;

/// No task is moved before this time, as RFC 3339 cannot write an earlier one.
const YEAR_0: Timestamp = Timestamp::from_millis(-62_167_219_200_000);

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
    pub(crate) fn from(self, due: Timestamp) -> Timestamp {
        match self {
            // Not cut off at the last valid moment: a later time is refused, as any other.
            Self::Later(by) => Timestamp::from_millis(due.as_millis().saturating_add(millis(by))),
            Self::Earlier(by) => due.shifted(millis(by).saturating_neg()).max(YEAR_0.min(due)),
        }
    }
}
