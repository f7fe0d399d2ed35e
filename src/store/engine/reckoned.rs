//! The time by a table's clock, where its last answer is not long ago.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::Instant;

use crate::Timestamp;
use crate::clock::Clock;

/// For how long it is reckoned from an answer. A sweep asks twice a second; where the table's clock is set back, what is
/// reckoned is ahead of it until then.
const FRESH: Duration = Duration::from_secs(2);

/// Keeps the last time that a table gave, so that what becomes of a row can be reckoned without asking.
#[derive(Debug, Default)]
pub(super) struct Reckoned(Mutex<Option<(Timestamp, Instant)>>);

impl Reckoned {
    /// Keeps a time that has just come.
    pub(super) fn hear(&self, now: Timestamp, clock: &Clock) {
        *self.heard() = Some((now, clock.instant()));
    }

    /// The time: never ahead of the table's, as an answer takes a while to come; none if the last is too old.
    pub(super) fn now(&self, clock: &Clock) -> Option<Timestamp> {
        let (then, at) = (*self.heard())?;
        let since = clock.instant().saturating_duration_since(at);
        (since < FRESH).then(|| then.after(since))
    }

    fn heard(&self) -> std::sync::MutexGuard<'_, Option<(Timestamp, Instant)>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}
