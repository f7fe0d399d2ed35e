//! How masters hold what is delayed.

use std::time::Duration;

use crate::LevelTable;
use crate::backend::Reach;

/// How a master holds a message until its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Holding {
    /// For the delays of this table.
    Levels(LevelTable),
    /// For any delay up to this one.
    Timers(Duration),
    /// Not at all, for this reason.
    Not(String),
}

impl Holding {
    pub(super) fn table(&self) -> Option<&LevelTable> {
        match self {
            Self::Levels(table) => Some(table),
            Self::Timers(_) | Self::Not(_) => None,
        }
    }

    /// What it can hold; none, if nothing.
    pub(super) fn reach(&self) -> Option<Reach> {
        match self {
            Self::Levels(table) => Some(Reach::Levels(table.clone())),
            Self::Timers(longest) => Some(Reach::Any { max: *longest }),
            Self::Not(_) => None,
        }
    }
}
