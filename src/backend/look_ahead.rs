//! Holds what is due soon, as it is told.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Backend;
use super::wheel::{Bounds, WheelBackend};
use crate::clock::Clock;
use crate::defaults;
use crate::store::store_time::Heard;
use crate::store::{Ahead, Pending};

/// How many rows one look reads.
const LIMIT: usize = 4_096;
/// A short name for it.
pub(crate) const NAME: &str = "look-ahead";
/// How often to look: twice in the time that a look covers, so that a row is found long before it is due even if a look
/// takes a while or one fails.
const LOOK_EVERY: Duration = defaults::LOOK_AHEAD.checked_div(2).expect("two is not zero");
/// The least pause after a look that was cut off by the limit. What it found that was due already is not found again by
/// then: in a burst the next look finds what comes after it, and the database has its time for those that are due.
const LOOK_ON: Duration = Ahead::SINCE;
/// How many wake-ups are held at the most, whether anybody receives or not: about 10 MB.
const CAPACITY: usize = 16 * LIMIT;

/// What comes next in the store, for the precise backend where none is given: a timing wheel that holds what is due soon.
///
/// It keeps no wake-up that the table cannot tell again: the worker's sweep looks ahead, and tells it of what comes. So a
/// long delay costs nothing here, and what it forgets or has no room for is found by the next look.
#[derive(Debug)]
pub(crate) struct LookAhead {
    wheel: Arc<WheelBackend>,
}

impl LookAhead {
    /// What a sweep is to look for.
    pub(crate) const WANTED: Ahead = Ahead {
        within: defaults::LOOK_AHEAD,
        limit: LIMIT,
    };
    /// The pause after a look that failed.
    pub(crate) const AGAIN: Duration = Duration::from_millis(250);

    pub(crate) fn new(clock: Clock) -> Self {
        let bounds = Bounds {
            // Those that the next look could find too late; the others are left to the table.
            within: defaults::LOOK_AHEAD,
            capacity: CAPACITY,
        };
        Self {
            wheel: Arc::new(WheelBackend::bounded(NAME, clock, bounds)),
        }
    }

    /// What it tells, as a backend.
    pub(crate) fn backend(&self) -> Arc<dyn Backend> {
        self.wheel.clone()
    }

    /// Takes what a sweep has found that was asked for at `asked`; says in how long to look again at the latest.
    pub(crate) fn take<T>(&self, asked: Instant, heard: &Heard<T>, found: &[Pending]) -> Duration {
        let mut next = asked + LOOK_EVERY;
        if let Some(last) = found.last().filter(|_| found.len() >= LIMIT) {
            next = next.min(heard.instant_of(last.due_at));
        }
        let held = self.wheel.held();
        let pause = held.change(|wheel, now| {
            for row in found {
                // One that is held stays as it is: its time is no better known now.
                if !wheel.holds(&row.wake) {
                    let at = held.time_of(heard.instant_of(row.due_at));
                    self.wheel.hold(wheel, &row.wake, at);
                }
            }
            held.time_of(next).saturating_sub(now).max(LOOK_ON)
        });
        // Once it is closed, nobody needs to look.
        pause.unwrap_or(LOOK_EVERY)
    }
}

#[cfg(test)]
mod tests;
