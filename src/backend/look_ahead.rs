//! Holds tasks that are due soon, as the sweep reads them.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Backend;
use super::wheel::{Bounds, WheelBackend};
use crate::clock::Clock;
use crate::defaults;
use crate::observe::history::LOOK_AHEAD;
use crate::store::store_time::Timed;
use crate::store::{Ahead, Pending};

/// How many rows one read-ahead returns.
const LIMIT: usize = 4_096;
/// How often to read ahead: twice in the time that one covers, so that a row is found long before it is due even if a
/// read takes a while or one fails.
const LOOK_EVERY: Duration = defaults::LOOK_AHEAD.checked_div(2).expect("two is not zero");
/// The least pause after a read that was cut off by the limit. Rows that it found due are not found again by then: in a
/// burst the next read finds what comes after them, and the database has time for those that are due.
const LOOK_ON: Duration = Ahead::SINCE;
/// How many wake-ups are held at the most, with or without receivers: about 10 MB.
const CAPACITY: usize = 16 * LIMIT;

/// Holds the rows that are due next, as the default precise backend: a timing wheel.
///
/// It keeps no wake-up that the table cannot provide again: the worker's sweep reads ahead, and passes on what it
/// finds. So a long delay costs nothing here, and whatever it forgets or has no capacity for is found by the next read.
#[derive(Debug)]
pub(crate) struct LookAhead {
    wheel: Arc<WheelBackend>,
}

impl LookAhead {
    /// The rows that a sweep reads ahead.
    pub(crate) const WANTED: Ahead = Ahead {
        within: defaults::LOOK_AHEAD,
        limit: LIMIT,
    };
    /// The pause after a failed read.
    pub(crate) const AGAIN: Duration = Duration::from_millis(250);

    pub(crate) fn new(clock: Clock) -> Self {
        let bounds = Bounds {
            // Those that the next read could find too late; the others are left to the table.
            within: defaults::LOOK_AHEAD,
            capacity: CAPACITY,
        };
        Self {
            wheel: Arc::new(WheelBackend::bounded(LOOK_AHEAD, clock, bounds)),
        }
    }

    /// Returns the backend that delivers them.
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        self.wheel.clone()
    }

    /// Takes the rows of a sweep that was sent at `asked`; returns after what time to read again at the latest.
    pub(crate) fn take<T>(&self, asked: Instant, heard: &Timed<T>, found: &[Pending]) -> Duration {
        let mut next = asked + LOOK_EVERY;
        if let Some(last) = found.last().filter(|_| found.len() >= LIMIT) {
            next = next.min(heard.instant_of(last.due_at));
        }
        let held = self.wheel.held();
        let pause = held.change(|wheel, now| {
            for row in found {
                // A row that is held stays as it is: its time is no better known now.
                if !wheel.holds(&row.wake) {
                    let at = held.time_of(heard.instant_of(row.due_at));
                    self.wheel.hold(wheel, &row.wake, at);
                }
            }
            held.time_of(next).saturating_sub(now).max(LOOK_ON)
        });
        // Once it is closed, there is no need to read ahead.
        pause.unwrap_or(LOOK_EVERY)
    }
}

#[cfg(test)]
mod tests;
