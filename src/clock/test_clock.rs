//! A clock that stands still unless it is turned.

mod sleeping;
mod watched;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;
use tokio::time::Instant;

use self::sleeping::Sleeping;
pub(super) use self::watched::{Busy, Watched};
use super::{Clock, whole_millis};
use crate::Timestamp;
use crate::task::timestamp::duration;

/// Turns a [`Clock`] that stands still otherwise: for tests of what happens after a quarter of an hour, or a year.
///
/// Whatever goes by its clock sleeps until it is turned, and not until real time has passed. So a test turns it to the next
/// moment at which something is due ([`MemoryStore::next_look`](crate::store::MemoryStore::next_look)), waits until all that
/// follows has [`settled`](Self::settled), and turns it on. Of the stores, those in memory and of SQLite go by such a
/// clock. Let the worker sweep every millisecond ([`Worker::sweep_every`](crate::Worker::sweep_every)): then it sweeps once
/// whenever the clock was turned, and never while it stands.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::clock::TestClock;
/// use delayline::store::MemoryStore;
/// use delayline::{Context, NewTask, Outcome, Scheduler, State, Timestamp, Worker};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let test_clock = TestClock::starting_at("2026-12-24T08:00:00Z".parse()?);
/// let store = MemoryStore::with_clock(test_clock.clock());
/// let scheduler = Scheduler::builder(std::sync::Arc::new(store.clone())).clock(test_clock.clock()).build()?;
/// let worker = Worker::new(&scheduler)
///     .sweep_every(Duration::from_millis(1))
///     .handle("order.cancel", async |_: u64, _: Context| Ok(Outcome::Done));
/// let running = tokio::spawn(test_clock.watch(worker.run()));
///
/// let unpaid = NewTask::new("order.cancel", &42).key("42").after(Duration::from_secs(900));
/// let due = scheduler.schedule(unpaid).await?.task().due_at;
/// test_clock.settled().await;
/// assert_eq!(store.next_look(test_clock.now()), Some(due));
///
/// test_clock.turn_to(due);
/// test_clock.settled().await;
/// let task = scheduler.find(("order.cancel", "42")).await?;
/// assert_eq!(task.map(|task| task.state), Some(State::Done));
/// # running.abort();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct TestClock {
    turned: Arc<Turned>,
}

impl TestClock {
    /// A clock that stands at `start`.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime of one thread (`current_thread`): only there nothing happens unseen between the end of one
    /// part and the beginning of the next.
    pub fn starting_at(start: Timestamp) -> Self {
        assert!(
            Handle::try_current().is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread),
            "a test clock is made in a tokio runtime of one thread"
        );
        Self {
            turned: Arc::new(Turned {
                start,
                origin: Instant::now(),
                state: Mutex::default(),
                settled: Notify::new(),
            }),
        }
    }

    /// The clock, for the store and the scheduler. It draws its chance from the operating system.
    pub fn clock(&self) -> Clock {
        Clock::turned(Arc::clone(&self.turned))
    }

    /// The time to which it has been turned.
    pub fn now(&self) -> Timestamp {
        self.turned.now()
    }

    /// Turns the clock on to `time`, and wakes what sleeps until then, whatever is under way; nothing, if it is there or
    /// further.
    pub fn turn_to(&self, time: Timestamp) {
        self.turned.turn_to(time);
    }

    /// Waits until nothing can happen any more unless the clock is turned: no part that goes by it has anything to do, and no
    /// handler of a worker is running, whatever real time that takes.
    ///
    /// What callers do by themselves is not waited for, unless it is [watched](Self::watch).
    pub async fn settled(&self) {
        self.turned.settled().await;
    }

    /// Wraps a future so that [`settled`](Self::settled) also waits for it whenever it has something to do.
    pub fn watch<F: Future>(&self, future: F) -> impl Future<Output = F::Output> + use<F> {
        Watched::new(&self.turned, future)
    }
}

/// How far a clock has been turned, the sleepers by it, and how much is under way.
#[derive(Debug)]
pub(super) struct Turned {
    start: Timestamp,
    /// Where its monotonic time begins.
    origin: Instant,
    state: Mutex<State>,
    /// Nothing is under way any more.
    settled: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// In whole milliseconds, as times are.
    by: Duration,
    /// By when they wake.
    sleepers: BTreeMap<(Instant, u64), Waker>,
    slept: u64,
    busy: usize,
}

impl Turned {
    pub(super) fn now(&self) -> Timestamp {
        self.start.shifted(whole_millis(self.by()))
    }

    pub(super) fn by(&self) -> Duration {
        self.state().by
    }

    pub(super) fn instant(&self) -> Instant {
        self.origin + self.by()
    }

    /// Ends when the clock is turned to `until`.
    pub(super) fn sleep_until(&self, until: Instant) -> impl Future<Output = ()> {
        Sleeping::new(self, until)
    }

    fn turn_to(&self, time: Timestamp) {
        let woken = {
            let mut state = self.state();
            state.by = state.by.max(duration(time.millis_since(self.start)));
            let now = self.origin + state.by;
            let rest = state.sleepers.split_off(&(now, u64::MAX));
            std::mem::replace(&mut state.sleepers, rest)
        };
        // Without the lock: to be woken is to be busy, which takes it.
        woken.into_values().for_each(Waker::wake);
    }

    async fn settled(&self) {
        loop {
            // Made before the look: from here on no change is missed.
            let settled = self.settled.notified();
            if self.state().busy == 0 {
                return;
            }
            settled.await;
        }
    }

    fn begin(&self) {
        self.state().busy += 1;
    }

    fn end(&self) {
        let mut state = self.state();
        state.busy -= 1;
        if state.busy == 0 {
            drop(state);
            self.settled.notify_waiters();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
