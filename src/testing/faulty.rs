//! Makes a backend with every fault that the contract of backends allows.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Error;
use crate::backend::{Arrival, Backend, Delays, Departure, SendError, Wake};
use crate::clock::Clock;

/// Loses, doubles, delays and hastens wake-ups, and refuses some, as its [`Faults`] say; the clock is the source of all
/// chance.
#[derive(Debug)]
pub struct FaultyBackend {
    delays: Delays,
    clock: Clock,
    state: Mutex<FaultyState>,
    sent: Notify,
}

#[derive(Debug)]
struct FaultyState {
    faults: Faults,
    next: u64,
    held: BTreeMap<(Instant, u64), Wake>,
    log: Vec<Wake>,
}

/// How often a fault happens, each in percent of wake-ups, or of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Taken and never delivered.
    pub lose: u64,
    /// Delivered twice, at different moments.
    pub double: u64,
    /// Delivered up to 10 s late.
    pub late: u64,
    /// Delivered at any moment before its delay is over.
    pub early: u64,
    /// A send is refused as a whole, though some of the batch may be taken.
    pub refuse: u64,
    /// Everything held is lost, at a send.
    pub forget: u64,
    /// How late a delivery is without any fault, at the most.
    pub usual: Duration,
}

impl FaultyBackend {
    /// Makes a backend that promises `delays` and has `faults`.
    pub fn new(delays: Delays, faults: Faults, clock: Clock) -> Self {
        let state = FaultyState {
            faults,
            next: 0,
            held: BTreeMap::new(),
            log: Vec::new(),
        };
        Self {
            delays,
            clock,
            state: Mutex::new(state),
            sent: Notify::new(),
        }
    }

    /// Sets the faults from now on.
    pub fn set_faults(&self, faults: Faults) {
        self.state().faults = faults;
    }

    /// Returns every wake-up that was sent to it, in order.
    pub fn log(&self) -> Vec<Wake> {
        self.state().log.clone()
    }

    fn state(&self) -> MutexGuard<'_, FaultyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn happens(&self, percent: u64) -> bool {
        percent > 0 && self.clock.random_below(100) < percent
    }

    fn up_to(&self, most: Duration) -> Duration {
        let millis = u64::try_from(most.as_millis()).unwrap_or(u64::MAX - 1);
        Duration::from_millis(self.clock.random_below(millis + 1))
    }

    /// Chooses when a wake-up that is to be held for `delay` is delivered.
    fn delivery(&self, delay: Duration, faults: Faults) -> Instant {
        // No test runs for longer.
        const LONGEST: Duration = Duration::from_secs(10 * 366 * 86_400);
        let delay = delay.min(LONGEST);
        let lateness = self.up_to(faults.usual);
        let held_for = if self.happens(faults.early) {
            self.up_to(delay)
        } else if self.happens(faults.late) {
            delay + lateness + self.up_to(Duration::from_secs(10))
        } else {
            delay + lateness
        };
        self.clock.instant() + held_for
    }
}

#[async_trait]
impl Backend for FaultyBackend {
    fn name(&self) -> &'static str {
        "faulty"
    }

    fn delays(&self) -> Delays {
        self.delays.clone()
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        let faults = self.state().faults;
        if self.happens(faults.forget) {
            self.state().held.clear();
        }
        let refused = self.happens(faults.refuse);
        for Departure { wake, delay } in batch {
            self.state().log.push(wake.clone());
            // Of a refused batch each was taken or not.
            if self.happens(faults.lose) || (refused && self.happens(50)) {
                continue;
            }
            let copies = if self.happens(faults.double) { 2 } else { 1 };
            for _ in 0..copies {
                let delivery = self.delivery(*delay, faults);
                let mut state = self.state();
                let number = state.next;
                state.next += 1;
                state.held.insert((delivery, number), wake.clone());
            }
        }
        self.sent.notify_waiters();
        if refused {
            let source = "refused by chance".into();
            let cause = Error::Backend {
                backend: self.name(),
                transient: true,
                source,
            };
            return Err(SendError::all(batch.len(), cause));
        }
        Ok(())
    }

    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        self.state().held.retain(|_, held| !wakes.contains(held));
        Ok(())
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        loop {
            let sent = self.sent.notified();
            let now = self.clock.instant();
            let next = {
                let mut state = self.state();
                let mut arrivals = Vec::new();
                while let Some(entry) = state.held.first_entry()
                    && entry.key().0 <= now
                    && arrivals.len() < max
                {
                    let ((_, ticket), wake) = entry.remove_entry();
                    arrivals.push(Arrival { wake, ticket });
                }
                if !arrivals.is_empty() {
                    return Ok(arrivals);
                }
                state.held.first_key_value().map(|(&(delivery, _), _)| delivery)
            };
            match next {
                Some(delivery) => tokio::select! {
                    biased;
                    () = sent => {}
                    () = self.clock.sleep_until(delivery) => {}
                },
                None => sent.await,
            }
        }
    }

    async fn acknowledge(&self, _arrivals: Vec<Arrival>) {}

    async fn health(&self) -> Result<(), Error> {
        Ok(())
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(())
    }
}
