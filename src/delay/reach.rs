//! Describes which delays a backend can hold.

use std::time::Duration;

use super::level_table::LevelTable;

/// Which delays a backend can hold, and how late it usually is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delays {
    /// Which delays.
    pub reach: Reach,
    /// How late its wake-ups usually are at the most: after its delay and this much more, a wake-up counts as overdue.
    pub usual_lateness: Duration,
}

/// The delays that a backend can hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Any delay up to the longest, zero included; a longer delay takes several hops.
    Any {
        /// The longest.
        max: Duration,
    },
    /// Only the delays of a table.
    Levels(LevelTable),
}
