//! Sends each wake-up on the route that is right now.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::backend::{Backend, Departure, Reach, SendError};
use crate::delay::{Hop, Route, route};
use crate::misses::Misses;
use crate::stats::Counters;
use crate::timestamp::{duration, millis};
use crate::{Clock, Error, Kind, Routing, Wake, WokenBy, defaults};

/// Chooses a backend for each wake-up and sends it there; what the level backend does not take goes to the precise
/// one at once.
#[derive(Debug)]
pub(crate) struct Router {
    levels: Option<LevelBackend>,
    precise: Arc<dyn Backend>,
    routing: Routing,
    /// How far a wake-up of a kind may reach that has a check.
    reach: BTreeMap<Kind, Duration>,
    clock: Clock,
    counters: Arc<Counters>,
}

/// The level backend, and whether it is sent to.
#[derive(Debug)]
struct LevelBackend {
    backend: Arc<dyn Backend>,
    well: AtomicBool,
    misses: Misses,
    fell_ill: Notify,
}

/// A wake-up on its way, and when its task is due by the monotonic clock.
#[derive(Clone, Debug)]
pub(crate) struct Trip {
    pub(crate) wake: Wake,
    pub(crate) due: Instant,
}

impl Trip {
    /// How long until the task is due, in whole ms, as the rows have it.
    fn remaining(&self, now: Instant) -> Duration {
        duration(millis(self.due.saturating_duration_since(now)))
    }
}

/// Where a wake-up goes next, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leg {
    Level(Duration),
    Precise(Duration),
}

impl Router {
    /// Refuses backends that cannot do what they are here for.
    pub(crate) fn new(
        levels: Option<Arc<dyn Backend>>,
        precise: Arc<dyn Backend>,
        routing: Routing,
        reach: BTreeMap<Kind, Duration>,
        clock: Clock,
        counters: Arc<Counters>,
    ) -> Result<Self, Error> {
        if !matches!(precise.delays().reach, Reach::Any { .. }) {
            return Err(Error::invalid(
                "precise",
                precise.name(),
                "allowed is a backend that holds any delay",
            ));
        }
        if routing.handoff > routing.horizon {
            return Err(Error::invalid(
                "handoff",
                format_args!("{:?}", routing.handoff),
                format!("allowed is at most the horizon, {:?}", routing.horizon),
            ));
        }
        Ok(Self {
            levels: levels.map(|backend| LevelBackend {
                backend,
                well: AtomicBool::new(true),
                misses: Misses::default(),
                fell_ill: Notify::new(),
            }),
            precise,
            routing,
            reach,
            clock,
            counters,
        })
    }

    /// The backends, each of which a worker receives from, and what a wake-up from it is known as.
    pub(crate) fn backends(&self) -> impl Iterator<Item = (WokenBy, &Arc<dyn Backend>)> {
        self.levels
            .iter()
            .map(|levels| (WokenBy::Levels, &levels.backend))
            .chain([(WokenBy::Precise, &self.precise)])
    }

    /// When the wake-up of a task of `kind` that is due in `remaining` will be overdue. Of an unknown kind: when it
    /// may be, since a look too many costs less than one too late.
    pub(crate) fn look_in(&self, kind: Option<&Kind>, remaining: Duration) -> Duration {
        let reach = match kind {
            Some(kind) => self.reach(kind),
            None => self.reach.values().min().copied().unwrap_or(Duration::MAX),
        };
        match self.leg(remaining, reach) {
            (Leg::Level(delay) | Leg::Precise(delay), lateness) => delay.saturating_add(lateness),
        }
    }

    fn reach(&self, kind: &Kind) -> Duration {
        self.reach.get(kind).copied().unwrap_or(Duration::MAX)
    }

    /// The next leg, no longer than `reach`, of a task that is due in `remaining`; and how late the backend that
    /// takes it usually is.
    fn leg(&self, remaining: Duration, reach: Duration) -> (Leg, Duration) {
        self.levels
            .as_ref()
            .filter(|levels| levels.is_well())
            .and_then(|levels| self.level_leg(&*levels.backend, remaining, reach))
            .unwrap_or_else(|| self.precise_leg(remaining, reach))
    }

    /// The leg through the level backend, unless the precise one is the right one.
    fn level_leg(
        &self,
        backend: &dyn Backend,
        remaining: Duration,
        reach: Duration,
    ) -> Option<(Leg, Duration)> {
        let mut delays = backend.delays();
        if let Reach::Any { max } = &mut delays.reach {
            *max = reach.min(*max);
        }
        let hop = match (route(remaining, &self.routing, Some(&delays)), &delays.reach) {
            // Not even by the tolerance: that spares the last hops, and this is not one of them.
            (Route::Hop(Hop::Level(level)), Reach::Levels(table)) if level.delay > reach => {
                table.largest_within(reach).map(Hop::Level)
            }
            (Route::Hop(hop), _) => Some(hop),
            (Route::Run | Route::Precise, _) => None,
        };
        Some((Leg::Level(hop?.delay()), delays.usual_lateness))
    }

    fn precise_leg(&self, remaining: Duration, reach: Duration) -> (Leg, Duration) {
        let delays = self.precise.delays();
        let delay = match delays.reach {
            Reach::Any { max } => remaining.min(max),
            Reach::Levels(_) => remaining,
        };
        let delay = delay.min(reach);
        (Leg::Precise(delay), delays.usual_lateness)
    }

    /// Sends each wake-up on its way; what nobody takes is left to the sweep.
    pub(crate) async fn send(&self, trips: Vec<Trip>) {
        let now = self.clock.instant();
        let mut by_level = Vec::new();
        let mut levels_batch = Vec::new();
        let mut by_precise = Vec::new();
        let ill = self.levels.as_ref().filter(|levels| !levels.is_well());
        for trip in trips {
            let (remaining, reach) = (trip.remaining(now), self.reach(&trip.wake.kind));
            match self.leg(remaining, reach).0 {
                Leg::Level(delay) => {
                    levels_batch.push(Departure {
                        wake: trip.wake.clone(),
                        delay,
                    });
                    by_level.push(trip);
                }
                Leg::Precise(_) => {
                    let missed = ill.and_then(|levels| self.level_leg(&*levels.backend, remaining, reach));
                    self.counters.rerouted.add(usize::from(missed.is_some()));
                    by_precise.push(trip);
                }
            }
        }
        // Both at once: what is due soon does not wait for a level backend that does not answer.
        let (refused, ()) = tokio::join!(
            biased;
            self.send_levels(by_level, levels_batch),
            self.send_precise(by_precise),
        );
        self.send_precise(refused).await;
    }

    /// Gives those of `trips` that the level backend did not take; `batch` is their departures.
    async fn send_levels(&self, trips: Vec<Trip>, batch: Vec<Departure>) -> Vec<Trip> {
        let Some(levels) = self.levels.as_ref().filter(|_| !batch.is_empty()) else {
            return Vec::new();
        };
        let mut failed = Vec::new();
        match self.send_to(&levels.backend, &batch).await {
            Ok(()) => levels.misses.took(),
            Err(SendError {
                failed: places,
                cause,
            }) => {
                failed = places;
                levels.missed(batch.len(), failed.len(), &cause);
            }
        }
        self.counters
            .sent_levels
            .add(batch.len().saturating_sub(failed.len()));
        self.counters.rerouted.add(failed.len());
        let refused = failed.into_iter().filter_map(|place| trips.get(place).cloned());
        refused.collect()
    }

    async fn send_precise(&self, trips: Vec<Trip>) {
        if trips.is_empty() {
            return;
        }
        let now = self.clock.instant();
        let batch: Vec<_> = trips
            .into_iter()
            .map(|trip| {
                let remaining = trip.remaining(now);
                let reach = self.reach(&trip.wake.kind);
                let (Leg::Level(delay) | Leg::Precise(delay), _) = self.precise_leg(remaining, reach);
                Departure {
                    wake: trip.wake,
                    delay,
                }
            })
            .collect();
        let mut failed = 0;
        if let Err(SendError {
            failed: places,
            cause,
        }) = self.send_to(&self.precise, &batch).await
        {
            failed = places.len();
            warn!(backend = self.precise.name(), wakes = failed, %cause, "wake-ups not sent; the sweep will find their tasks");
        }
        self.counters.sent_precise.add(batch.len().saturating_sub(failed));
        self.counters.left_to_sweep.add(failed);
    }

    async fn send_to(&self, backend: &Arc<dyn Backend>, batch: &[Departure]) -> Result<(), SendError> {
        match self
            .clock
            .timeout(defaults::SEND_TIMEOUT, backend.send(batch))
            .await
        {
            Some(result) => result,
            None => Err(SendError::all(batch.len(), timed_out(backend.name()))),
        }
    }

    /// Tells the precise backend that nobody needs these any more. On a broker nothing can be removed.
    pub(crate) async fn remove(&self, wakes: &[Wake]) {
        let result = self
            .clock
            .timeout(defaults::SEND_TIMEOUT, self.precise.remove(wakes))
            .await;
        let result = result.unwrap_or_else(|| Err(timed_out(self.precise.name())));
        if let Err(cause) = result {
            // They arrive, name a past version and are dropped.
            warn!(backend = self.precise.name(), wakes = wakes.len(), %cause, "wake-ups not removed");
        }
    }

    /// Asks an ill level backend again and again until it is well. Never ends.
    pub(crate) async fn watch(&self) {
        let Some(levels) = &self.levels else {
            return std::future::pending().await;
        };
        loop {
            while levels.is_well() {
                levels.fell_ill.notified().await;
            }
            self.clock.sleep(defaults::HEALTH_EVERY).await;
            if let Some(Ok(())) = self
                .clock
                .timeout(defaults::SEND_TIMEOUT, levels.backend.health())
                .await
            {
                levels.misses.took();
                levels.well.store(true, Ordering::Relaxed);
                info!(backend = levels.backend.name(), "the backend is well again");
            }
        }
    }
}

impl LevelBackend {
    fn is_well(&self) -> bool {
        self.well.load(Ordering::Relaxed)
    }

    /// Of a batch some wake-ups were not taken, or all.
    fn missed(&self, batch: usize, failed: usize, cause: &Error) {
        debug!(backend = self.backend.name(), wakes = failed, %cause, "wake-ups not sent; these go to the precise backend");
        if failed < batch {
            self.misses.took();
        } else if self.misses.missed() && self.well.swap(false, Ordering::Relaxed) {
            warn!(
                backend = self.backend.name(),
                %cause, "the backend is unwell; wake-ups go to the precise one"
            );
            self.fell_ill.notify_one();
        }
    }
}

fn timed_out(backend: &'static str) -> Error {
    Error::Backend {
        backend,
        transient: true,
        source: format!("no answer within {:?}", defaults::SEND_TIMEOUT).into(),
    }
}
