//! Carries wake-ups in this process, to the millisecond.

use std::fmt;
use std::hash::BuildHasher as _;
use std::time::Duration;

use async_trait::async_trait;
use hashbrown::hash_table::Entry as Place;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::in_process::{InProcess, Queue, next_millis};
use super::{Arrival, Backend, Delays, Departure, Reach, SendError};
use crate::backend::Wake;
use crate::backend::timing_wheel::{Entry, Wheel};
use crate::clock::Clock;
use crate::{Error, TaskId, defaults};

/// Carries wake-ups in this process, to the millisecond: a timing wheel.
///
/// What it holds is lost when the process ends, and the sweep finds the rows. It forgets what it has given to a
/// receiver, so acknowledging does nothing.
pub struct WheelBackend {
    held: InProcess<WakeWheel>,
    bounds: Bounds,
}

/// What a wheel does not hold; the owner of bounds provides these again.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    /// Longer delays than this.
    pub(super) within: Duration,
    /// More wake-ups than this.
    pub(super) capacity: usize,
}

impl Bounds {
    const NONE: Self = Self {
        within: Duration::MAX,
        capacity: usize::MAX,
    };
}

impl WheelBackend {
    /// Makes an empty wheel.
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// Makes an empty wheel that uses `clock`.
    pub fn with_clock(clock: Clock) -> Self {
        Self::bounded("wheel", clock, Bounds::NONE)
    }

    pub(super) fn bounded(name: &'static str, clock: Clock, bounds: Bounds) -> Self {
        Self {
            held: InProcess::new(name, clock, WakeWheel::new()),
            bounds,
        }
    }

    /// Returns the clock of the wheel, and what it holds.
    pub(super) fn held(&self) -> &InProcess<WakeWheel> {
        &self.held
    }

    /// Holds a wake-up if there is capacity.
    pub(super) fn hold(&self, wheel: &mut WakeWheel, wake: &Wake, at: Duration) {
        if wheel.len() < self.bounds.capacity {
            wheel.hold(wake, next_millis(at));
        }
    }
}

impl Default for WheelBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WheelBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WheelBackend").finish_non_exhaustive()
    }
}

#[async_trait]
impl Backend for WheelBackend {
    fn name(&self) -> &'static str {
        self.held.name()
    }

    fn delays(&self) -> Delays {
        Delays {
            reach: Reach::Any { max: Duration::MAX },
            usual_lateness: defaults::PRECISE_LATENESS,
        }
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        self.held.send(batch.len(), |wheel, now| {
            for Departure { wake, delay } in batch {
                if *delay <= self.bounds.within {
                    self.hold(wheel, wake, now.saturating_add(*delay));
                }
            }
        })
    }

    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        self.held.change(|wheel, _| wheel.forget(wakes))
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        self.held.receive(max).await
    }

    async fn acknowledge(&self, _arrivals: Vec<Arrival>) {}

    async fn health(&self) -> Result<(), Error> {
        self.held.health()
    }

    async fn close(&self) -> Result<(), Error> {
        self.held.close(WakeWheel::new());
        Ok(())
    }
}

/// A timing wheel that holds each wake-up once.
pub(super) struct WakeWheel {
    wheel: Wheel<Wake>,
    /// The place of each one in the wheel, by its id and version.
    entries: HashTable<Entry>,
    /// Differs from wheel to wheel: callers may choose ids.
    hasher: DefaultHashBuilder,
}

impl WakeWheel {
    pub(super) fn new() -> Self {
        Self {
            wheel: Wheel::new(),
            entries: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn holds(&self, wake: &Wake) -> bool {
        let hash = self.hasher.hash_one(key(wake));
        self.entries
            .find(hash, |&entry| is_of(&self.wheel, entry, wake))
            .is_some()
    }

    /// Holds a wake-up until `at`; one that is held already, until the earlier of its times.
    pub(super) fn hold(&mut self, wake: &Wake, at: u64) {
        let Self {
            wheel,
            entries,
            hasher,
        } = self;
        let hash_of = |&entry: &Entry| wheel.value_of(entry).map_or(0, |wake| hasher.hash_one(key(wake)));
        let is_it = |&entry: &Entry| is_of(wheel, entry, wake);
        match entries.entry(hasher.hash_one(key(wake)), is_it, hash_of) {
            Place::Vacant(place) => {
                place.insert(wheel.insert(at, wake.clone()));
            }
            Place::Occupied(mut place) => {
                let held = *place.get();
                let sooner = wheel.time_of(held).is_some_and(|held| at < held);
                if sooner && let Some(wake) = wheel.cancel(held) {
                    *place.get_mut() = wheel.insert(at, wake);
                }
            }
        }
    }

    pub(super) fn forget(&mut self, wakes: &[Wake]) {
        let Self {
            wheel,
            entries,
            hasher,
        } = self;
        for wake in wakes {
            let hash = hasher.hash_one(key(wake));
            if let Ok(place) = entries.find_entry(hash, |&entry| is_of(wheel, entry, wake)) {
                wheel.cancel(place.remove().0);
            }
        }
    }
}

impl Queue for WakeWheel {
    fn take(&mut self, now: u64, max: usize, taken: &mut Vec<Wake>) {
        let Self {
            wheel,
            entries,
            hasher,
        } = self;
        wheel.expire(now, max, |expired, wake| {
            let hash = hasher.hash_one(key(&wake));
            if let Ok(place) = entries.find_entry(hash, |&entry| entry == expired) {
                place.remove();
            }
            taken.push(wake);
        });
    }

    fn next(&self) -> Option<u64> {
        self.wheel.next_expiry()
    }
}

fn key(wake: &Wake) -> (TaskId, u64) {
    (wake.id, wake.version)
}

/// Says whether an entry is that of a wake-up.
fn is_of(wheel: &Wheel<Wake>, entry: Entry, wake: &Wake) -> bool {
    wheel.value_of(entry).is_some_and(|held| key(held) == key(wake))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wake(number: u8) -> Wake {
        Wake {
            id: TaskId::from_bytes([number; 16]),
            kind: "k".into(),
            version: 1,
        }
    }

    fn departure(number: u8, micros: u64) -> Departure {
        Departure {
            wake: wake(number),
            delay: Duration::from_micros(micros),
        }
    }

    async fn received(backend: &WheelBackend) -> Vec<Wake> {
        let arrivals = backend.receive(10).await.unwrap();
        arrivals.into_iter().map(|arrival| arrival.wake).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_arrives_in_its_millisecond_and_never_before() {
        let clock = Clock::system();
        let backend = WheelBackend::with_clock(clock.clone());
        clock.sleep(Duration::from_millis(777)).await;
        let start = clock.instant();
        let late = 400 * 86_400_000;
        let batch = [
            departure(1, 90_001),
            departure(2, 5_000),
            departure(3, late * 1_000),
        ];
        backend.send(&batch).await.unwrap();
        for (number, millis) in [(2, 5), (1, 91), (3, late)] {
            assert_eq!(received(&backend).await, [wake(number)]);
            assert_eq!(start.elapsed(), Duration::from_millis(millis));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_is_sent_again_arrives_once_at_the_earlier_of_its_times() {
        let backend = WheelBackend::new();
        let start = tokio::time::Instant::now();
        for millis in [50, 20, 80] {
            backend.send(&[departure(1, millis * 1_000)]).await.unwrap();
        }
        assert_eq!(received(&backend).await, [wake(1)]);
        assert_eq!(start.elapsed(), Duration::from_millis(20));
        backend.send(&[departure(2, 100_000)]).await.unwrap();
        assert_eq!(received(&backend).await, [wake(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_receiver_is_told_of_an_earlier_one_even_if_another_was_told_first_and_went_away() {
        let backend = WheelBackend::new();
        let start = tokio::time::Instant::now();
        backend.send(&[departure(1, 3_600_000_000)]).await.unwrap();
        let mut gone = Box::pin(received(&backend));
        let mut stays = Box::pin(received(&backend));
        let both_look = async |gone: &mut _, stays: &mut _| {
            let both = async {
                tokio::select! { biased; _ = gone => (), _ = stays => () }
            };
            assert!(tokio::time::timeout(Duration::ZERO, both).await.is_err());
        };
        both_look(&mut gone, &mut stays).await;
        backend.send(&[departure(2, 20_000)]).await.unwrap();
        both_look(&mut gone, &mut stays).await;
        drop(gone);
        assert_eq!(stays.await, [wake(2)]);
        assert_eq!(start.elapsed(), Duration::from_millis(20));
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_asks_for_none_is_given_one() {
        let backend = WheelBackend::new();
        backend.send(&[departure(1, 0), departure(2, 0)]).await.unwrap();
        assert_eq!(backend.receive(0).await.unwrap().len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn what_has_arrived_or_was_removed_takes_no_room() {
        let backend = WheelBackend::new();
        backend.send(&[departure(1, 0), departure(2, 0)]).await.unwrap();
        backend.remove(&[wake(1), wake(9)]).await.unwrap();
        assert_eq!(received(&backend).await, [wake(2)]);
        assert_eq!(backend.held.change(|wheel, _| wheel.len()).unwrap(), 0);
    }
}
