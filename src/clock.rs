//! The one door through which time, chance and concurrency enter.

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::timestamp::millis;
use crate::{TaskId, Timestamp};

/// Tells the time, draws chance and starts tasks, for every part of the crate.
///
/// The scheduler, the worker, the memory store and the in-process backends ask nothing else for any of the three. So
/// the same code runs under tokio's paused clock, in one thread and from one seed, the same way every time.
#[derive(Clone)]
pub struct Clock {
    wall: Wall,
    /// What this clock is ahead of the true one, in ms; only tests set it.
    skew: Arc<AtomicI64>,
    chance: Arc<Mutex<fastrand::Rng>>,
}

#[derive(Clone, Copy)]
enum Wall {
    /// The machine's clock, which may be stepped.
    System,
    /// A fixed moment, carried on by tokio's clock, which a test may pause.
    #[cfg_attr(not(any(test, feature = "testing")), allow(dead_code))]
    Simulated { start: Timestamp, origin: Instant },
}

impl Clock {
    /// The machine's clock, seeded by the operating system.
    pub fn system() -> Self {
        Self::new(Wall::System, fastrand::Rng::new())
    }

    /// A clock that starts at 2001-09-09T01:46:40Z, follows tokio's clock, and draws all chance from `seed`.
    #[cfg(any(test, feature = "testing"))]
    pub fn simulated(seed: u64) -> Self {
        let start = Timestamp::from_millis(1_000_000_000_000);
        let origin = Instant::now();
        Self::new(Wall::Simulated { start, origin }, fastrand::Rng::with_seed(seed))
    }

    /// The same clock and the same chance, but `millis` ahead of it (behind, if negative).
    #[cfg(any(test, feature = "testing"))]
    pub fn skewed(&self, millis: i64) -> Self {
        let skew = self.skew.load(Ordering::Relaxed) + millis;
        Self {
            skew: Arc::new(AtomicI64::new(skew)),
            ..self.clone()
        }
    }

    /// Steps this clock, and every clone of it, by `millis`.
    #[cfg(any(test, feature = "testing"))]
    pub fn step(&self, millis: i64) {
        self.skew.fetch_add(millis, Ordering::Relaxed);
    }

    fn new(wall: Wall, chance: fastrand::Rng) -> Self {
        Self {
            wall,
            skew: Arc::default(),
            chance: Arc::new(Mutex::new(chance)),
        }
    }

    /// The wall-clock time, the part of a millisecond cut off: rounded up, it would call a task due before it is.
    pub fn now(&self) -> Timestamp {
        let time = match self.wall {
            Wall::System => match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => Timestamp::from_millis(whole_millis(since)),
                Err(before) => Timestamp::from_millis(0).shifted(-millis(before.duration())),
            },
            Wall::Simulated { start, origin } => start.shifted(whole_millis(origin.elapsed())),
        };
        time.shifted(self.skew.load(Ordering::Relaxed))
    }

    /// The monotonic time, which no step of the wall clock moves.
    pub fn instant(&self) -> Instant {
        Instant::now()
    }

    /// Ends after `delay` of monotonic time.
    pub async fn sleep(&self, delay: Duration) {
        tokio::time::sleep(delay).await;
    }

    /// Ends at `instant`.
    pub async fn sleep_until(&self, instant: Instant) {
        tokio::time::sleep_until(instant).await;
    }

    /// What `future` gives, or none after `limit`.
    pub async fn timeout<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(limit, future).await.ok()
    }

    /// A random number below `bound`, each as likely; 0 if `bound` is 0.
    pub fn random_below(&self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        self.chance().u64(0..bound)
    }

    /// A new task id: a UUID, version 7, of this moment.
    pub fn new_id(&self) -> TaskId {
        let millis = u64::try_from(self.now().as_millis()).unwrap_or(0);
        let mut random = [0; 10];
        self.chance().fill(&mut random);
        uuid::Builder::from_unix_timestamp_millis(millis, &random)
            .into_uuid()
            .into()
    }

    /// Starts `future` as a task of its own, which ends when the returned handle is dropped.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub fn spawn<F>(&self, future: F) -> Spawned
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Spawned(tokio::spawn(future))
    }

    /// Starts `future` as a task of `set`, which ends when the set is dropped.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime.
    pub(crate) fn spawn_in<F>(&self, set: &mut JoinSet<F::Output>, future: F) -> AbortHandle
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        set.spawn(future)
    }

    fn chance(&self) -> std::sync::MutexGuard<'_, fastrand::Rng> {
        self.chance.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The moment `delay` after `at`; a century after it at the most, since instants end somewhere and a due time may be
/// further.
pub(crate) fn instant_after(at: Instant, delay: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 366 * 86_400);
    at + delay.min(FAR)
}

fn whole_millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}

impl Default for Clock {
    fn default() -> Self {
        Self::system()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clock").field(&self.now()).finish()
    }
}

/// A started task, which is aborted when this is dropped.
#[derive(Debug)]
pub struct Spawned(JoinHandle<()>);

impl Drop for Spawned {
    fn drop(&mut self) {
        self.0.abort();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_never_ahead_of_the_time() {
        let clock = Clock::system();
        for _ in 0..100 {
            let told = clock.now().as_millis();
            let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            assert!(told <= whole_millis(since), "{told} is later than {since:?}");
        }
    }
}
