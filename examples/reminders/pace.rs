//! Runs days in seconds.

use delayline::Timestamp;
use jiff::Zoned;

/// The time of the story, which begins now and runs faster. A service has no need of it: a task for a `Zoned` is due at
/// its `timestamp()`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    began: Timestamp,
    first: i64,
    hour: i64,
}

const HOUR: i64 = 3_600_000;

impl Pace {
    /// Begins the story at `first`; an hour of it is `hour` ms.
    pub(crate) fn new(began: Timestamp, first: &Zoned, hour: u16) -> Self {
        Self {
            began,
            first: first.timestamp().as_millisecond(),
            hour: hour.max(1).into(),
        }
    }

    /// Returns the real time for a time of the story.
    pub(crate) fn real(&self, told: &Zoned) -> Timestamp {
        let since = told.timestamp().as_millisecond() - self.first;
        // Rounded up: no reminder may be early.
        let real = (since * self.hour + HOUR - 1).div_euclid(HOUR);
        Timestamp::from_millis(self.began.as_millis() + real)
    }
}
