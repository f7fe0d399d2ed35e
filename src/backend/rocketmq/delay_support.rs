//! Describes how a master supports delays.

use std::time::Duration;

use crate::backend::Reach;
use crate::delay::LevelTable;

/// Which delays a master can hold a message for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DelaySupport {
    /// For the delays of this table.
    Levels(LevelTable),
    /// For any delay up to this one.
    Timers(Duration),
    /// Not at all, for this reason.
    Unsupported(String),
}

impl DelaySupport {
    pub(super) fn table(&self) -> Option<&LevelTable> {
        match self {
            Self::Levels(table) => Some(table),
            Self::Timers(_) | Self::Unsupported(_) => None,
        }
    }

    /// Returns what it can hold; none, if nothing.
    pub(super) fn reach(&self) -> Option<Reach> {
        match self {
            Self::Levels(table) => Some(Reach::Levels(table.clone())),
            Self::Timers(longest) => Some(Reach::Any { max: *longest }),
            Self::Unsupported(_) => None,
        }
    }
}
