//! Says what brought a due task to a worker.

use std::fmt;

/// What made the worker look at a task that was due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WokenBy {
    /// A wake-up from the carrier: its chain of hops ended on a level, or a timer was late.
    Carrier,
    /// A wake-up from the precise backend.
    Precise,
    /// A free place: the task had been due before, and no worker had room for it, or another process had said so.
    Room,
    /// The sweep: its wake-up did not come, or the worker that had it died.
    Sweep,
}

impl WokenBy {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Carrier => "carrier",
            Self::Precise => "precise",
            Self::Room => "room",
            Self::Sweep => "sweep",
        }
    }
}

impl fmt::Display for WokenBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
