//! Shared parts of the backends that hold wake-ups in this process: the lock, the clock and the waiting.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Arrival, SendError};
use crate::Error;
use crate::backend::Wake;
use crate::clock::Clock;

/// Holds wake-ups until their times, which are in ms since an origin of its owner.
pub(super) trait Queue {
    /// Returns up to `max` wake-ups whose time is `now` or earlier.
    fn take(&mut self, now: u64, max: usize, taken: &mut Vec<Wake>);

    /// Returns when to ask again, if nothing is added before; never later than a wake-up's time.
    fn next(&self) -> Option<u64>;
}

/// The queue, its waiting receivers, and its clock.
pub(super) struct InProcess<Q> {
    name: &'static str,
    clock: Clock,
    origin: Instant,
    state: Mutex<State<Q>>,
    /// Notified when the next time becomes earlier, or the backend is closed.
    changed: Notify,
}

struct State<Q> {
    queue: Q,
    closed: bool,
}

impl<Q: Queue> InProcess<Q> {
    pub(super) fn new(name: &'static str, clock: Clock, queue: Q) -> Self {
        Self {
            name,
            origin: clock.instant(),
            clock,
            state: Mutex::new(State { queue, closed: false }),
            changed: Notify::new(),
        }
    }

    pub(super) fn name(&self) -> &'static str {
        self.name
    }

    fn elapsed(&self) -> Duration {
        self.time_of(self.clock.instant())
    }

    /// Returns the time since the origin.
    pub(super) fn time_of(&self, instant: Instant) -> Duration {
        instant.saturating_duration_since(self.origin)
    }

    /// Changes the queue, given the time since the origin, and wakes receivers that must check sooner.
    pub(super) fn change<R>(&self, change: impl FnOnce(&mut Q, Duration) -> R) -> Result<R, Error> {
        let mut state = self.open_state()?;
        let before = state.queue.next();
        // Read under the lock, so that the queue sees time go forward only.
        let result = change(&mut state.queue, self.elapsed());
        let sooner = match (before, state.queue.next()) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(before), Some(now)) => now < before,
        };
        drop(state);
        if sooner {
            // All of them: a single one that was notified and then dropped would leave the others asleep.
            self.changed.notify_waiters();
        }
        Ok(result)
    }

    /// Adds a batch, refused as a whole if the backend is closed.
    pub(super) fn send(&self, count: usize, put: impl FnOnce(&mut Q, Duration)) -> Result<(), SendError> {
        self.change(put).map_err(|cause| SendError::all(count, cause))
    }

    /// Waits for the first wake-up. Nothing is taken before the last await, so a dropped call loses nothing.
    pub(super) async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        let max = max.max(1);
        loop {
            // Before the check: from here on no change is missed.
            let changed = self.changed.notified();
            let (taken, next) = self.take(max)?;
            if !taken.is_empty() {
                return Ok(taken);
            }
            match next.and_then(|next| self.origin.checked_add(Duration::from_millis(next))) {
                Some(next) => tokio::select! {
                    biased;
                    () = changed => {}
                    () = self.clock.sleep_until(next) => {}
                },
                None => changed.await,
            }
        }
    }

    fn take(&self, max: usize) -> Result<(Vec<Arrival>, Option<u64>), Error> {
        let mut wakes = Vec::new();
        let mut state = self.open_state()?;
        let now = whole_millis(self.elapsed());
        state.queue.take(now, max, &mut wakes);
        let next = state.queue.next();
        drop(state);
        // They need no acknowledgement, so the ticket has no meaning.
        let arrival = |wake| Arrival { wake, ticket: 0 };
        Ok((wakes.into_iter().map(arrival).collect(), next))
    }

    pub(super) fn health(&self) -> Result<(), Error> {
        self.open_state().map(drop)
    }

    /// Ends every `receive`, and drops what is held.
    pub(super) fn close(&self, empty: Q) {
        let mut state = self.lock();
        state.closed = true;
        let held = std::mem::replace(&mut state.queue, empty);
        drop(state);
        drop(held);
        self.changed.notify_waiters();
    }

    fn open_state(&self) -> Result<MutexGuard<'_, State<Q>>, Error> {
        let state = self.lock();
        if state.closed {
            return Err(Error::Backend {
                backend: self.name,
                transient: false,
                source: "it has been closed".into(),
            });
        }
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State<Q>> {
        // A panic under the lock loses wake-ups at the worst, and those may be lost.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts the whole ms that have passed.
fn whole_millis(elapsed: Duration) -> u64 {
    u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX)
}

/// Returns the first whole ms that is not before `time`.
pub(super) fn next_millis(time: Duration) -> u64 {
    u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, OnceLock};

    use super::*;
    use crate::TaskId;

    /// A queue that changes right after the first check.
    struct ChangedAfterTheLook {
        backend: Arc<OnceLock<InProcess<Self>>>,
        looks: usize,
    }

    impl Queue for ChangedAfterTheLook {
        fn take(&mut self, _now: u64, _max: usize, taken: &mut Vec<Wake>) {
            self.looks += 1;
            if self.looks > 1 {
                taken.push(Wake {
                    id: TaskId::from_bytes([1; 16]),
                    kind: "k".into(),
                    version: 1,
                });
            }
        }

        fn next(&self) -> Option<u64> {
            self.backend.get().unwrap().changed.notify_waiters();
            None
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_between_the_look_and_the_waiting_is_not_missed() {
        let backend = Arc::new(OnceLock::new());
        let queue = ChangedAfterTheLook {
            backend: backend.clone(),
            looks: 0,
        };
        let in_process = InProcess::new("test", Clock::system(), queue);
        let in_process = backend.get_or_init(|| in_process);
        let received = tokio::time::timeout(Duration::from_secs(60), in_process.receive(1)).await;
        assert_eq!(received.unwrap().unwrap().len(), 1);
    }
}
