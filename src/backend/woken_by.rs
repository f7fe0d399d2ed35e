//! Says what brought a due task to a worker.

use std::fmt;

/// How the worker found the due task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WokenBy {
    /// By a wake-up from the carrier: its chain of hops ended on a level, or a timer was late.
    Carrier,
    /// By a wake-up from the precise backend.
    Precise,
    /// When capacity came free: the task had been due before, and no worker had capacity for it, or another process had
    /// reported it.
    Room,
    /// By the sweep: its wake-up did not come, or the worker that had it died.
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
