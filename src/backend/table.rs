//! Reads due times ahead from the store's own table.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tracing::{info, warn};

use super::in_process::{InProcess, next_millis};
use super::wheel::WakeWheel;
use super::{Arrival, Backend, Delays, Departure, Reach, SendError};
use crate::store::{Ahead, Pending, Stamped, Store};
use crate::store_time::CLOCK_READ_WITHIN;
use crate::timestamp::duration;
use crate::{Clock, Error, Spawned, Timestamp, Wake, defaults};

/// How far ahead each look reads.
const LOOK_AHEAD: Duration = defaults::LOOK_AHEAD;
/// How often the table is looked at: twice in the time that a look covers, so that a row is found long before it is due
/// even if a look takes a while or one fails.
const LOOK_EVERY: Duration = LOOK_AHEAD.checked_div(2).expect("two is not zero");
/// How many rows one look reads.
const LOOK_LIMIT: usize = 4_096;
/// What a look reads.
const LOOK: Ahead = Ahead {
    within: LOOK_AHEAD,
    limit: LOOK_LIMIT,
};
/// The least pause after a look that was cut off by the limit. What it found that was due already is not found again by
/// then: in a burst the next look finds what comes after it, and the database has its time for those that are due.
const LOOK_ON: Duration = Ahead::SINCE;
/// The pause after a look that failed.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// How many wake-ups are held at the most, whether anybody receives or not: about 10 MB.
const CAPACITY: usize = 16 * LOOK_LIMIT;

/// The precise backend that needs nothing but the rows: reads ahead which are due next, and waits for them in a
/// timing wheel.
///
/// It keeps no wake-up that the table cannot tell it again, so a long delay costs nothing here, and what it forgets
/// or has no room for is found by the next look. It looks once something is received, and until it is dropped or
/// closed; not while a worker's sweep looks for it, so that an idle database is asked no more often than needed.
pub struct TableBackend {
    ahead: Arc<Held>,
    looking: Mutex<Option<Spawned>>,
}

impl TableBackend {
    /// One that reads ahead in `store` and waits by `clock`.
    pub fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        let held = InProcess::new("table", clock, WakeWheel::new());
        let next = Mutex::default();
        Self {
            ahead: Arc::new(Held { store, held, next }),
            looking: Mutex::default(),
        }
    }

    /// What a sweep is to look ahead for, on behalf of this backend.
    pub(crate) fn wanted(&self) -> Ahead {
        LOOK
    }

    /// The time by which a look counts, for [`looked`](Self::looked).
    pub(crate) fn elapsed(&self) -> Duration {
        self.ahead.held.elapsed()
    }

    /// Takes what a sweep has found that was asked for at `asked`; says when to look again at the latest.
    pub(crate) fn looked(&self, asked: Duration, now: Timestamp, found: &[Pending]) -> Duration {
        // A closed backend has no need of it.
        self.ahead.take(asked, now, found).unwrap_or(LOOK_EVERY)
    }

    fn start_looking(&self) {
        let mut looking = self.looking();
        // Closing ends this first, so nothing is started behind its back.
        if looking.is_none() && self.ahead.held.health().is_ok() {
            let ahead = Arc::clone(&self.ahead);
            *looking = Some(
                self.ahead
                    .held
                    .clock()
                    .spawn(async move { ahead.keep_looking().await }),
            );
        }
    }

    fn looking(&self) -> MutexGuard<'_, Option<Spawned>> {
        self.looking.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TableBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TableBackend")
            .field("store", &self.ahead.store)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for TableBackend {
    fn name(&self) -> &'static str {
        "table"
    }

    fn delays(&self) -> Delays {
        Delays {
            reach: Reach::Any { max: Duration::MAX },
            usual_lateness: defaults::PRECISE_LATENESS,
        }
    }

    /// Holds those that the next look could find too late. The others it leaves to the table.
    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        self.ahead.held.send(batch.len(), |wheel, now| {
            for Departure { wake, delay } in batch {
                if *delay <= LOOK_AHEAD {
                    hold(wheel, wake, now + *delay);
                }
            }
        })
    }

    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        self.ahead.held.change(|wheel, _| wheel.forget(wakes))
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        self.start_looking();
        self.ahead.held.receive(max).await
    }

    async fn acknowledge(&self, _arrivals: Vec<Arrival>) {}

    async fn health(&self) -> Result<(), Error> {
        self.ahead.held.health()
    }

    async fn close(&self) -> Result<(), Error> {
        self.ahead.held.close(WakeWheel::new());
        self.looking().take();
        Ok(())
    }
}

/// What is due next, as far as it is known.
struct Held {
    store: Arc<dyn Store>,
    held: InProcess<WakeWheel>,
    /// When to look next, by the last look, whoever looked.
    next: Mutex<Duration>,
}

impl Held {
    /// Looks for ever. A task of its own, so that neither a slow look delays what is held, nor a dropped call of
    /// `receive` ends a look.
    async fn keep_looking(&self) {
        let mut failing = false;
        loop {
            let pause = match self.look().await {
                Ok(pause) => {
                    if std::mem::take(&mut failing) {
                        info!(store = self.store.name(), "due times are read ahead again");
                    }
                    pause
                }
                Err(error) => {
                    if !std::mem::replace(&mut failing, true) {
                        warn!(store = self.store.name(), %error, "due times cannot be read ahead");
                    }
                    LOOK_AGAIN
                }
            };
            self.held.clock().sleep(pause).await;
        }
    }

    fn next(&self) -> MutexGuard<'_, Duration> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks once, unless somebody else has done so; says how long to pause before the next look.
    async fn look(&self) -> Result<Duration, Error> {
        let asked = self.held.elapsed();
        let next = *self.next();
        if next > asked {
            return Ok(next - asked);
        }
        let Stamped { now, found } = self.store.upcoming(LOOK).await?;
        self.take(asked, now, &found)
    }

    /// Takes what a look has found; says how long to pause before the next look.
    fn take(&self, asked: Duration, now: Timestamp, found: &[Pending]) -> Result<Duration, Error> {
        let read = self.held.elapsed().min(asked + CLOCK_READ_WITHIN);
        let ahead: Vec<_> = found
            .iter()
            .map(|row| (&row.wake, read + duration(row.due_at.millis_since(now))))
            .collect();
        let mut next = asked + LOOK_EVERY;
        if let Some((_, last)) = ahead.last().filter(|_| ahead.len() >= LOOK_LIMIT) {
            next = next.min(*last);
        }
        *self.next() = next;
        self.held.change(|wheel, now| {
            for (wake, at) in ahead {
                // One that is held stays as it is: its time is no better known now.
                if !wheel.holds(wake) {
                    hold(wheel, wake, at);
                }
            }
            next.saturating_sub(now).max(LOOK_ON)
        })
    }
}

/// Holds a wake-up if there is room; the table has it anyway.
fn hold(wheel: &mut WakeWheel, wake: &Wake, at: Duration) {
    if wheel.len() < CAPACITY {
        wheel.hold(wake, next_millis(at));
    }
}
