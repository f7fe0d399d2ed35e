//! What happened so far, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::store::Ending;

/// What one scheduler, its claims and the worker beside it did since it was built: counters, and how late handlers started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Wake-ups that the carrier took, be it by a level or by a timer.
    pub sent_by_carrier: u64,
    /// Wake-ups that the precise backend took.
    pub sent_precise: u64,
    /// Wake-ups that the carrier did not take, or was not asked to because it was unwell, and that went to the
    /// precise one instead.
    pub rerouted: u64,
    /// Wake-ups that no backend took: the sweep finds their tasks.
    pub left_to_sweep: u64,
    /// Wake-ups received.
    pub received: u64,
    /// Messages received that were no wake-ups, and were dropped: see [`Backend::foreign`](crate::backend::Backend).
    pub foreign: u64,
    /// Wake-ups that named a past version, and were dropped.
    pub stale: u64,
    /// Hops recorded.
    pub hops: u64,
    /// Tasks claimed when their wake-up arrived.
    pub claimed_on_arrival: u64,
    /// Tasks claimed when there was room for them again, or by [`Claims`](crate::claims::Claims).
    pub claimed_when_ready: u64,
    /// Tasks claimed by the sweep.
    pub claimed_by_sweep: u64,
    /// Due tasks seen for which there was no room.
    pub no_room: u64,
    /// Due tasks seen for whose kind this worker has no handler.
    pub no_handler: u64,
    /// Leases of other workers, or of this one, that had ended and were taken back.
    pub expired: u64,
    /// Handlers started, and tasks given to claimants.
    pub started: u64,
    /// Tasks done, `Again` included.
    pub done: u64,
    /// Failed attempts that will be tried again.
    pub retried: u64,
    /// Snoozes.
    pub snoozed: u64,
    /// Tasks given up.
    pub dead: u64,
    /// Tasks given back untouched, by a graceful stop, or because their claimant had gone away.
    pub released: u64,
    /// Claims that had been lost by the time they were to be renewed, started or settled; those that had ended before
    /// included, if a claimant ends one twice.
    pub lost_claims: u64,
    /// Tasks moved or cancelled because the service's own table said so: see [`Expected`](crate::expected::Expected).
    pub followed: u64,
    /// Calls of a [`Check`](crate::expected::Check) that failed.
    pub check_failed: u64,
    /// Rows of old history removed.
    pub purged: u64,
    /// How late handlers started.
    pub late: Lateness,
}

/// How long after its due time a handler was started, by the store's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Lateness {
    /// The median, in ms.
    pub p50_ms: u64,
    /// Of 100, one was later, in ms.
    pub p99_ms: u64,
    /// The latest, in ms.
    pub max_ms: u64,
}

macro_rules! counters {
    ($($name:ident),* $(,)?) => {
        /// The counters behind [`Stats`], which many tasks add to.
        #[derive(Debug)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
            late: Mutex<Histogram<u64>>,
        }

        impl Default for Counters {
            fn default() -> Self {
                Self {
                    $($name: Counter::default(),)*
                    late: Mutex::new(
                        Histogram::new_with_bounds(1, LONGEST_MS, 3).expect("the bounds are valid"),
                    ),
                }
            }
        }

        impl Counters {
            /// What they say now, beside what the backends say of foreign messages.
            pub(crate) fn snapshot(&self, foreign: u64) -> Stats {
                let late = self.late.lock().unwrap_or_else(PoisonError::into_inner);
                Stats {
                    $($name: self.$name.0.load(Ordering::Relaxed),)*
                    foreign,
                    late: Lateness {
                        p50_ms: late.value_at_quantile(0.5),
                        p99_ms: late.value_at_quantile(0.99),
                        max_ms: late.max(),
                    },
                }
            }
        }
    };
}

counters!(
    sent_by_carrier,
    sent_precise,
    rerouted,
    left_to_sweep,
    received,
    stale,
    hops,
    claimed_on_arrival,
    claimed_when_ready,
    claimed_by_sweep,
    no_room,
    no_handler,
    expired,
    started,
    done,
    retried,
    snoozed,
    dead,
    released,
    lost_claims,
    followed,
    check_failed,
    purged,
);

/// Longer lateness is recorded as this: a day.
const LONGEST_MS: u64 = 24 * 3_600_000;

impl Counters {
    /// A claim was ended so.
    pub(crate) fn ended(&self, ending: &Ending) {
        let ended = match ending {
            Ending::Done | Ending::Again { .. } => &self.done,
            Ending::Retry { .. } => &self.retried,
            Ending::Snooze { .. } => &self.snoozed,
            Ending::Dead { .. } => &self.dead,
            Ending::Release => &self.released,
            Ending::Moved { .. } | Ending::Cancelled => &self.followed,
        };
        ended.add(1);
    }

    /// A handler was started this late.
    pub(crate) fn late(&self, lateness: Duration) {
        let millis = u64::try_from(lateness.as_millis()).unwrap_or(LONGEST_MS);
        self.late
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .saturating_record(millis);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.0.fetch_add(count as u64, Ordering::Relaxed);
    }
}
