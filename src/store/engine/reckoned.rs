//! The time by a table's clock, where its last answer is not long ago.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::Timestamp;
use crate::clock::{Clock, Moment};

/// For how long it is reckoned from an answer, counted from its call. A sweep asks twice a second; where the table's clock
/// is set back, what is reckoned is ahead of it until then.
const FRESH: Duration = Duration::from_secs(2);

/// Keeps the last time that a table gave, so that what becomes of a row can be reckoned without asking.
#[derive(Debug, Default)]
pub(super) struct Reckoned(Mutex<Option<Last>>);

/// The last answer.
#[derive(Clone, Copy, Debug)]
struct Last {
    now: Timestamp,
    asked: Moment,
    answered: Instant,
}

impl Reckoned {
    /// Keeps a time that has just come, which the table was asked for at `asked`.
    pub(super) fn hear(&self, now: Timestamp, asked: Moment, clock: &Clock) {
        *self.last() = Some(Last {
            now,
            asked,
            answered: clock.instant(),
        });
    }

    /// The time, which is not ahead of the table's unless that was set back, as an answer takes a while to come. None if the last
    /// is too old, or if the machine has slept since its call, as a table's clock goes on meanwhile.
    pub(super) fn now(&self, clock: &Clock) -> Option<Timestamp> {
        let Last { now, asked, answered } = (*self.last())?;
        let moment = clock.moment();
        let is_fresh = asked.until(&moment) < FRESH && asked.slept_until(&moment).is_zero();
        let since = moment.instant().saturating_duration_since(answered);
        is_fresh.then(|| now.after(since))
    }

    fn last(&self) -> std::sync::MutexGuard<'_, Option<Last>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
