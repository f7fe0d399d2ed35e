//! Days in seconds.

use delayline::Timestamp;
use jiff::Zoned;

/// How the time of the story goes by, which begins now and goes faster. A service has no need of it: what is due at a
/// `Zoned` is due at its `timestamp()`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    began: Timestamp,
    first: i64,
    hour: i64,
}

const HOUR: i64 = 3_600_000;

impl Pace {
    /// The story begins at `first`; an hour of it is `hour` ms.
    pub(crate) fn new(began: Timestamp, first: &Zoned, hour: u16) -> Self {
        Self {
            began,
            first: first.timestamp().as_millisecond(),
            hour: hour.max(1).into(),
        }
    }

    /// When it is so late in the story.
    pub(crate) fn real(&self, told: &Zoned) -> Timestamp {
        let since = told.timestamp().as_millisecond() - self.first;
        // Rounded up: no reminder may be early.
        let real = (since * self.hour + HOUR - 1).div_euclid(HOUR);
        Timestamp::from_millis(self.began.as_millis() + real)
    }
}
