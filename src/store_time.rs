//! What the store's clock says, without asking it.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::Duration;

use tokio::time::Instant;

use crate::store::{Stamped, Store};
use crate::timestamp::duration;
use crate::{Clock, Error, Timestamp, When};

/// Follows the store's clock from one answer of the store to the next, by the monotonic clock between them.
///
/// What it says decides nothing: it chooses the first route of a task, and the store decides by its own clock.
#[derive(Debug)]
pub(crate) struct StoreTime {
    clock: Clock,
    last: Mutex<Option<(Timestamp, Instant)>>,
}

impl StoreTime {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            clock,
            last: Mutex::new(None),
        }
    }

    /// The store has just answered.
    pub(crate) fn heard<T>(&self, stamped: Stamped<T>) -> Heard<T> {
        let at = self.clock.instant();
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((stamped.now, at));
        Heard {
            now: stamped.now,
            at,
            found: stamped.found,
        }
    }

    /// The time by the store's clock, as far as it is known; none if the store never answered yet.
    pub(crate) fn now(&self) -> Option<Timestamp> {
        self.carried_on().map(|heard| heard.now)
    }

    /// As if the store had answered just now; none if it never did yet.
    pub(crate) fn carried_on(&self) -> Option<Heard<()>> {
        let (heard, then) = (*self.last.lock().unwrap_or_else(PoisonError::into_inner))?;
        let at = self.clock.instant();
        let now = heard.after(at.saturating_duration_since(then));
        Some(Heard { now, at, found: () })
    }

    /// How long until `due`, by the store's clock as far as it is known; asks the store if it never answered yet.
    pub(crate) async fn until(&self, due: When, store: &dyn Store) -> Result<Duration, Error> {
        match due {
            When::After(delay) => Ok(delay),
            When::At(time) => {
                let now = match self.now() {
                    Some(now) => now,
                    None => {
                        let now = store.now().await?;
                        self.heard(Stamped { now, found: () }).now
                    }
                };
                Ok(duration(time.millis_since(now)))
            }
        }
    }
}

/// What the store found, and when it answered by both clocks.
#[derive(Debug)]
pub(crate) struct Heard<T> {
    /// By the store's clock.
    pub(crate) now: Timestamp,
    /// By the monotonic clock.
    pub(crate) at: Instant,
    pub(crate) found: T,
}

impl<T> Heard<T> {
    /// How long until `due`, when the store answered.
    pub(crate) fn until(&self, due: Timestamp) -> Duration {
        duration(due.millis_since(self.now))
    }

    /// The moment of `due` by the monotonic clock.
    pub(crate) fn instant_of(&self, due: Timestamp) -> Instant {
        // Instants end somewhere after centuries; a due time may be further.
        const FAR: Duration = Duration::from_secs(100 * 366 * 86_400);
        self.at + self.until(due).min(FAR)
    }
}
