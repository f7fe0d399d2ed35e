//! Says when callers call, and when a machine is too slow for them.

use std::sync::Arc;
use std::time::Duration;

use delayline::Timestamp;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::{now, rate};

/// How many calls may be unanswered. Without a limit a machine that is too slow for them falls behind for ever.
const UNANSWERED: usize = 300;
/// When tasks are this late callers ask for no more.
const BEHIND: Duration = Duration::from_secs(2);

/// How many tasks are scheduled by each call: two at the least, one of which is cancelled.
pub(crate) fn tasks() -> usize {
    (rate() / 100).max(2)
}

/// How often some call.
fn every() -> Duration {
    Duration::from_secs_f64(tasks() as f64 / rate() as f64)
}

/// Says whether the last start was so late, and recent, as on a machine that is too slow for the load: then leases end,
/// and what is started again proves nothing.
pub(crate) fn is_behind(late: Duration, started: Timestamp) -> bool {
    late > BEHIND && now().as_millis() - started.as_millis() < 1_000
}

/// The moments of calls.
pub(crate) struct Pace {
    tick: Interval,
    room: Arc<Semaphore>,
}

impl Pace {
    pub(crate) fn new() -> Self {
        let mut tick = interval(every());
        // Missed ticks of a busy machine are made up for, as far as it keeps pace.
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let room = Arc::new(Semaphore::new(UNANSWERED));
        Self { tick, room }
    }

    /// Waits for the next moment; returns the permit that a call holds until it is answered, or none if there is to be
    /// no call.
    pub(crate) async fn next(&mut self, is_behind: impl FnOnce() -> bool) -> Option<OwnedSemaphorePermit> {
        self.tick.tick().await;
        if is_behind() {
            return None;
        }
        Some(
            self.room
                .clone()
                .acquire_owned()
                .await
                .expect("it is never closed"),
        )
    }
}
