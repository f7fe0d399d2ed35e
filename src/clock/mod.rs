//! Gives time, random numbers and spawned tasks to the whole crate, so that tests can turn all three.

pub(crate) mod background;
pub(crate) mod backoff;
pub(crate) mod hidden;
mod moment;
pub(crate) mod panics;
#[cfg(any(test, feature = "testing"))]
mod suspension;
mod test_clock;

use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::task::{AbortHandle, JoinHandle, JoinSet};
use tokio::time::Instant;

pub(crate) use self::moment::Moment;
#[cfg(any(test, feature = "testing"))]
use self::suspension::Suspension;
pub use self::test_clock::TestClock;
use self::test_clock::{Busy, Turned, Watched};
use crate::clock::hidden::Hidden;
use crate::task::timestamp::millis;
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
    chance: Chance,
    /// When the process of this clock slept, in a simulation.
    #[cfg(any(test, feature = "testing"))]
    suspension: Suspension,
}

#[derive(Clone)]
enum Chance {
    /// The operating system's, asked each time: a copy of a process, as a restored snapshot is one, must not draw what
    /// the other draws.
    System,
    #[cfg_attr(not(any(test, feature = "testing")), allow(dead_code))]
    Seeded(Arc<Mutex<fastrand::Rng>>),
}

impl Chance {
    fn fill(&self, bytes: &mut [u8]) {
        match self {
            Self::System => fill_by_system(bytes),
            Self::Seeded(seeded) => seeded.lock().unwrap_or_else(PoisonError::into_inner).fill(bytes),
        }
    }

    fn below(&self, bound: u64) -> u64 {
        match self {
            // A pause may be guessed.
            Self::System => fastrand::u64(..bound),
            Self::Seeded(seeded) => seeded.lock().unwrap_or_else(PoisonError::into_inner).u64(..bound),
        }
    }
}

#[derive(Clone)]
enum Wall {
    /// The machine's clock, which may be stepped.
    System,
    /// A fixed moment, carried on by tokio's clock, which a test may pause.
    #[cfg_attr(not(any(test, feature = "testing")), allow(dead_code))]
    Simulated { start: Timestamp, origin: Instant },
    /// One that stands still unless it is turned.
    Turned(Arc<Turned>),
}

impl Clock {
    /// The machine's clock, and the operating system's chance.
    pub fn system() -> Self {
        Self::new(Wall::System, Chance::System)
    }

    /// A clock that starts at 2001-09-09T01:46:40Z, follows tokio's clock, and draws all chance from `seed`.
    #[cfg(any(test, feature = "testing"))]
    pub fn simulated(seed: u64) -> Self {
        let start = Timestamp::from_millis(1_000_000_000_000);
        let origin = Instant::now();
        let seeded = Arc::new(Mutex::new(fastrand::Rng::with_seed(seed)));
        Self::new(Wall::Simulated { start, origin }, Chance::Seeded(seeded))
    }

    /// The same clock and the same chance, but `millis` ahead of it (behind, if negative), and of another process: it is
    /// suspended by itself.
    #[cfg(any(test, feature = "testing"))]
    pub fn skewed(&self, millis: i64) -> Self {
        let skew = self.skew.load(Ordering::Relaxed) + millis;
        Self {
            skew: Arc::new(AtomicI64::new(skew)),
            suspension: Suspension::default(),
            ..self.clone()
        }
    }

    /// Suspends the process of a simulated clock, and of every clone of it, for `span`: its monotonic clock stands
    /// still, the others go on, and nothing that it started through this clock does.
    #[cfg(any(test, feature = "testing"))]
    pub fn suspend(&self, span: Duration) {
        self.suspension.begin(span);
    }

    /// Steps this clock, and every clone of it, by `millis`.
    #[cfg(any(test, feature = "testing"))]
    pub fn step(&self, millis: i64) {
        self.skew.fetch_add(millis, Ordering::Relaxed);
    }

    fn turned(turned: Arc<Turned>) -> Self {
        Self::new(Wall::Turned(turned), Chance::System)
    }

    fn new(wall: Wall, chance: Chance) -> Self {
        Self {
            wall,
            skew: Arc::default(),
            chance,
            #[cfg(any(test, feature = "testing"))]
            suspension: Suspension::default(),
        }
    }

    /// The wall-clock time, the part of a millisecond cut off: rounded up, it would call a task due before it is.
    pub fn now(&self) -> Timestamp {
        let time = match &self.wall {
            Wall::System => match SystemTime::now().duration_since(UNIX_EPOCH) {
                Ok(since) => Timestamp::from_millis(whole_millis(since)),
                Err(before) => Timestamp::from_millis(0).shifted(-millis(before.duration())),
            },
            Wall::Simulated { start, origin } => start.shifted(whole_millis(origin.elapsed())),
            Wall::Turned(turned) => turned.now(),
        };
        time.shifted(self.skew.load(Ordering::Relaxed))
    }

    /// The monotonic time, which no step of the wall clock moves; it stands still while the machine sleeps.
    pub fn instant(&self) -> Instant {
        #[cfg(any(test, feature = "testing"))]
        if self.is_simulated() {
            return Instant::now() - self.suspension.so_far();
        }
        match &self.wall {
            Wall::Turned(turned) => turned.instant(),
            Wall::System | Wall::Simulated { .. } => Instant::now(),
        }
    }

    /// This moment by all clocks.
    pub(crate) fn moment(&self) -> Moment {
        let since_boot = match &self.wall {
            Wall::System => moment::since_boot(),
            Wall::Simulated { origin, .. } => Some(origin.elapsed()),
            Wall::Turned(turned) => Some(turned.by()),
        };
        Moment {
            instant: self.instant(),
            since_boot,
            wall: self.now(),
        }
    }

    /// Ends after `delay` of monotonic time.
    pub async fn sleep(&self, delay: Duration) {
        match self.instant().checked_add(delay) {
            Some(until) => self.sleep_until(until).await,
            None => std::future::pending().await,
        }
    }

    /// Ends at `instant`.
    pub async fn sleep_until(&self, instant: Instant) {
        #[cfg(any(test, feature = "testing"))]
        while self.is_simulated() {
            let slept = self.suspension.so_far();
            tokio::time::sleep_until(instant + slept).await;
            self.suspension.awake().await;
            if self.suspension.so_far() == slept {
                return;
            }
        }
        match &self.wall {
            Wall::Turned(turned) => turned.sleep_until(instant).await,
            Wall::System | Wall::Simulated { .. } => tokio::time::sleep_until(instant).await,
        }
    }

    /// Ends after `delay` of real time, though this clock stands still: a pause before something is tried again that another
    /// task of this process is in the way of.
    pub(crate) async fn pause(&self, delay: Duration) {
        match &self.wall {
            Wall::Turned(turned) => {
                let _busy = Busy::begin(turned);
                tokio::time::sleep(delay).await;
            }
            Wall::System | Wall::Simulated { .. } => self.sleep(delay).await,
        }
    }

    /// Makes a test clock wait until something has ended that it does not see.
    pub(crate) fn busy(&self) -> Option<Busy> {
        match &self.wall {
            Wall::Turned(turned) => Some(Busy::begin(turned)),
            Wall::System | Wall::Simulated { .. } => None,
        }
    }

    #[cfg(any(test, feature = "testing"))]
    fn is_simulated(&self) -> bool {
        matches!(self.wall, Wall::Simulated { .. })
    }

    /// What `future` gives, or none after `limit`.
    pub async fn timeout<T>(&self, limit: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        tokio::select! {
            biased;
            given = &mut future => Some(given),
            () = self.sleep(limit) => None,
        }
    }

    /// A random number that no other process draws, nor a copy of this one that goes on from the same moment.
    #[cfg(feature = "redis")]
    pub(crate) fn unique_number(&self) -> u64 {
        let mut random = [0; 8];
        self.chance.fill(&mut random);
        u64::from_be_bytes(random)
    }

    /// A random number below `bound`, each as likely; 0 if `bound` is 0.
    pub fn random_below(&self, bound: u64) -> u64 {
        if bound == 0 {
            return 0;
        }
        self.chance.below(bound)
    }

    /// A new task id: a UUID, version 7, of this moment.
    pub fn new_id(&self) -> TaskId {
        let millis = u64::try_from(self.now().as_millis()).unwrap_or(0);
        let mut random = [0; 10];
        self.chance.fill(&mut random);
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
        let future: Hidden<'static, ()> = Box::pin(future);
        #[cfg(any(test, feature = "testing"))]
        if self.is_simulated() {
            return Spawned(tokio::spawn(self.suspension.freeze(future)));
        }
        Spawned(match &self.wall {
            Wall::Turned(turned) => tokio::spawn(Watched::new(turned, future)),
            Wall::System | Wall::Simulated { .. } => tokio::spawn(future),
        })
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
        let future: Hidden<'static, F::Output> = Box::pin(future);
        #[cfg(any(test, feature = "testing"))]
        if self.is_simulated() {
            return set.spawn(self.suspension.freeze(future));
        }
        match &self.wall {
            Wall::Turned(turned) => set.spawn(Watched::new(turned, future)),
            Wall::System | Wall::Simulated { .. } => set.spawn(future),
        }
    }

    /// The same of what waits for others than this process, as handlers do: where a clock is turned that is waited for.
    pub(crate) fn spawn_handler<F>(&self, set: &mut JoinSet<F::Output>, future: F) -> AbortHandle
    where
        F: Future + Send + 'static,
        F::Output: Send,
    {
        let busy = self.busy();
        self.spawn_in(set, async move {
            let _busy = busy;
            future.await
        })
    }
}

/// The moment `delay` after `at`; a century after it at the most, since instants end somewhere and a due time may be
/// further.
pub(crate) fn instant_after(at: Instant, delay: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(100 * 366 * 86_400);
    at + delay.min(FAR)
}

/// A name that no other process has, nor a copy of this one that goes on from the same moment.
#[cfg(any(feature = "redis", feature = "rocketmq"))]
pub(crate) fn unique_name() -> String {
    let mut random = [0; 16];
    fill_by_system(&mut random);
    format!("{:032x}", u128::from_be_bytes(random))
}

fn fill_by_system(bytes: &mut [u8]) {
    if getrandom::fill(bytes).is_err() {
        // There is no system without it that has threads and sockets; an id must be made nevertheless.
        fastrand::fill(bytes);
    }
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

impl Spawned {
    pub(crate) fn has_ended(&self) -> bool {
        self.0.is_finished()
    }
}

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

    /// A restored snapshot of a machine has the memory, and so the generators, of what it is a copy of.
    #[test]
    fn a_copy_of_a_process_makes_ids_and_names_of_its_own() {
        let id = || {
            fastrand::seed(7);
            // Without the time.
            Clock::system().new_id().as_bytes()[8..].to_vec()
        };
        assert_ne!(id(), id());
        #[cfg(any(feature = "redis", feature = "rocketmq"))]
        {
            let name = || {
                fastrand::seed(7);
                unique_name()
            };
            assert_ne!(name(), name());
        }
        #[cfg(feature = "redis")]
        {
            let number = || {
                fastrand::seed(7);
                Clock::system().unique_number()
            };
            assert_ne!(number(), number());
        }
    }
}
