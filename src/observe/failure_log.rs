//! Logs failed attempts, within a limit for each kind.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::{Key, Kind, Task, defaults};

/// How many kinds are told apart within a period: what fails of others is logged one by one.
const MOST_KINDS: usize = 1_000;

/// Logs each failed attempt that is tried again, up to [`defaults::LOGGED_FAILURES`] of a kind within
/// [`defaults::LOGGED_FAILURES_WITHIN`], and then how many there were beyond.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<BTreeMap<Kind, Period>>);

#[derive(Debug)]
struct Period {
    ends: Instant,
    failed: usize,
}

impl FailureLog {
    /// An attempt of a task has failed at `now`, for this reason, and another follows after this long.
    pub(crate) fn failed(&self, task: &Task, reason: &str, after: Duration, now: Instant) {
        if !self.count(&task.kind, now) {
            return;
        }
        warn!(
            id = %task.id, kind = %task.kind, key = task.key.as_ref().map(Key::as_str), attempt = task.attempt, reason,
            next_in = ?after, "an attempt failed, and is made again"
        );
    }

    /// Whether one more is to be logged.
    fn count(&self, kind: &Kind, now: Instant) -> bool {
        let mut kinds = self.kinds();
        if kinds.get(kind).is_none_or(|period| period.ends <= now) {
            end_periods(&mut kinds, now);
            if kinds.len() >= MOST_KINDS {
                return true;
            }
        }
        let period = kinds.entry(kind.clone()).or_insert(Period {
            ends: now + defaults::LOGGED_FAILURES_WITHIN,
            failed: 0,
        });
        period.failed += 1;
        period.failed <= defaults::LOGGED_FAILURES
    }

    /// Logs how many attempts were left out of periods that have ended by now.
    pub(crate) fn tell_left_out(&self, now: Instant) {
        end_periods(&mut self.kinds(), now);
    }

    /// The same of all, at the end of a worker.
    pub(crate) fn end(&self) {
        for (kind, period) in std::mem::take(&mut *self.kinds()) {
            log_left_out(&kind, &period);
        }
    }

    fn kinds(&self) -> MutexGuard<'_, BTreeMap<Kind, Period>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end_periods(kinds: &mut BTreeMap<Kind, Period>, now: Instant) {
    kinds.retain(|kind, period| {
        let goes_on = now < period.ends;
        if !goes_on {
            log_left_out(kind, period);
        }
        goes_on
    });
}

fn log_left_out(kind: &Kind, period: &Period) {
    let left_out = period.failed.saturating_sub(defaults::LOGGED_FAILURES);
    if left_out > 0 {
        warn!(
            %kind, left_out, within = ?defaults::LOGGED_FAILURES_WITHIN,
            "more attempts failed than are logged one by one: each task has its reason in last_error"
        );
    }
}
