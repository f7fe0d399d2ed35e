//! Sends each wake-up on its next hop.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tracing::{debug, info, warn};

use crate::backend::{Backend, Departure, LookAhead, Reach, SendError, Wake, WokenBy};
use crate::clock::Clock;
use crate::delay::{Hop, Route, Routing, route};
use crate::history::Leg;
use crate::observe::metrics::wakeups;
use crate::route::failure_counter::FailureCounter;
use crate::stats::Counters;
use crate::task::due_wake::DueWake;
use crate::{Error, Kind, defaults};

/// How many hops of a route are shown at the most.
const MOST_HOPS: usize = 1_000;

/// Chooses a backend for each wake-up and sends it there; wake-ups that the carrier does not take go to the precise
/// backend at once.
#[derive(Debug)]
pub(crate) struct Router {
    carrier: Option<CarrierBackend>,
    precise: Arc<dyn Backend>,
    /// The default precise backend, where none was configured.
    look_ahead: Option<LookAhead>,
    routing: Routing,
    /// For kinds with a check: the longest time until the next wake-up.
    reach: BTreeMap<Kind, Duration>,
    clock: Clock,
    counters: Arc<Counters>,
}

/// The carrier, and whether it is healthy.
#[derive(Debug)]
struct CarrierBackend {
    backend: Arc<dyn Backend>,
    healthy: AtomicBool,
    failures: FailureCounter,
    became_unhealthy: Notify,
}

/// Where a wake-up goes next, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NextHop {
    Carrier(Hop),
    Precise(Duration),
}

impl NextHop {
    fn delay(self) -> Duration {
        match self {
            Self::Carrier(hop) => hop.delay(),
            Self::Precise(delay) => delay,
        }
    }
}

impl Router {
    /// Refuses backends that do not fit their role.
    pub(crate) fn new(
        carrier: Option<Arc<dyn Backend>>,
        precise: Option<Arc<dyn Backend>>,
        routing: Routing,
        reach: BTreeMap<Kind, Duration>,
        clock: Clock,
        counters: Arc<Counters>,
    ) -> Result<Self, Error> {
        let (look_ahead, precise) = match precise {
            Some(precise) => (None, precise),
            None => {
                let look_ahead = LookAhead::new(clock.clone());
                let precise = look_ahead.backend();
                (Some(look_ahead), precise)
            }
        };
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
            carrier: carrier.map(|backend| CarrierBackend {
                backend,
                healthy: AtomicBool::new(true),
                failures: FailureCounter::default(),
                became_unhealthy: Notify::new(),
            }),
            precise,
            look_ahead,
            routing,
            reach,
            clock,
            counters,
        })
    }

    /// Lists the backends, each of which a worker receives from, with the name for wake-ups from it.
    pub(crate) fn backends(&self) -> impl Iterator<Item = (WokenBy, &Arc<dyn Backend>)> {
        self.carrier
            .iter()
            .map(|carrier| (WokenBy::Carrier, &carrier.backend))
            .chain([(WokenBy::Precise, &self.precise)])
    }

    /// Returns the backend that reads ahead tasks that are due soon, unless another precise backend was configured.
    pub(crate) fn look_ahead(&self) -> Option<&LookAhead> {
        self.look_ahead.as_ref()
    }

    /// Returns after which time the wake-up of a task of `kind` that is due in `remaining` counts as overdue. For an
    /// unknown kind that is the shortest, as reading a row once too often costs less than reading it too late.
    pub(crate) fn overdue_after(&self, kind: Option<&Kind>, remaining: Duration) -> Duration {
        let (next, lateness) = self.next(kind, remaining);
        next.delay().saturating_add(lateness)
    }

    /// Returns that time, and the hop that the wake-up takes until then, for the history. For an unknown kind the hop is
    /// not known where some kinds have routes of their own.
    pub(crate) fn way(&self, kind: Option<&Kind>, remaining: Duration) -> (Duration, Option<Leg>) {
        let (next, lateness) = self.next(kind, remaining);
        let is_known = kind.is_some() || self.reach.is_empty();
        let leg = is_known.then(|| self.leg(next));
        (next.delay().saturating_add(lateness), leg)
    }

    fn next(&self, kind: Option<&Kind>, remaining: Duration) -> (NextHop, Duration) {
        let reach = match kind {
            Some(kind) => self.reach(kind),
            None => self.reach.values().min().copied().unwrap_or(Duration::MAX),
        };
        self.next_hop(remaining, reach)
    }

    fn leg(&self, next: NextHop) -> Leg {
        let (backend, level) = match (next, &self.carrier) {
            (NextHop::Carrier(hop), Some(carrier)) => {
                let level = match hop {
                    Hop::Level(level) => Some(level.number),
                    Hop::Timer(_) => None,
                };
                (carrier.backend.name(), level)
            }
            _ => (self.precise.name(), None),
        };
        Leg {
            backend: backend.to_owned(),
            level,
            delay: next.delay(),
        }
    }

    /// Lists all hops, if every one is punctual; only the first ones where there are very many.
    pub(crate) fn legs(&self, kind: &Kind, remaining: Duration) -> Vec<Leg> {
        let (mut legs, mut remaining) = (Vec::new(), remaining);
        while !remaining.is_zero() && legs.len() < MOST_HOPS {
            let (next, _) = self.next(Some(kind), remaining);
            if next.delay().is_zero() {
                break;
            }
            remaining = remaining.saturating_sub(next.delay());
            legs.push(self.leg(next));
        }
        legs
    }

    fn reach(&self, kind: &Kind) -> Duration {
        self.reach.get(kind).copied().unwrap_or(Duration::MAX)
    }

    /// Chooses the next hop, no longer than `reach`, of a task that is due in `remaining`; returns it with how late the
    /// backend that takes it usually is.
    fn next_hop(&self, remaining: Duration, reach: Duration) -> (NextHop, Duration) {
        self.carrier
            .as_ref()
            .filter(|carrier| carrier.is_healthy())
            .and_then(|carrier| self.carrier_leg(&*carrier.backend, remaining, reach))
            .unwrap_or_else(|| self.precise_hop(remaining, reach))
    }

    /// Returns the hop through the carrier, unless the precise backend is the right one.
    fn carrier_leg(
        &self,
        backend: &dyn Backend,
        remaining: Duration,
        reach: Duration,
    ) -> Option<(NextHop, Duration)> {
        let mut delays = backend.delays();
        if let Reach::Any { max } = &mut delays.reach {
            *max = reach.min(*max);
        }
        let hop = match (route(remaining, &self.routing, Some(&delays)), &delays.reach) {
            // The tolerance does not extend the reach of a check: it is for the last hop alone.
            (Route::Hop(Hop::Level(level)), Reach::Levels(table)) if level.delay > reach => {
                table.largest_within(reach).map(Hop::Level)
            }
            (Route::Hop(hop), _) => Some(hop),
            (Route::Run | Route::Precise, _) => None,
        };
        Some((NextHop::Carrier(hop?), delays.usual_lateness))
    }

    fn precise_hop(&self, remaining: Duration, reach: Duration) -> (NextHop, Duration) {
        let delays = self.precise.delays();
        let delay = match delays.reach {
            Reach::Any { max } => remaining.min(max),
            Reach::Levels(_) => remaining,
        };
        let delay = delay.min(reach);
        (NextHop::Precise(delay), delays.usual_lateness)
    }

    /// Sends each wake-up to its next backend; those that no backend takes are left to the sweep.
    pub(crate) async fn send(&self, due_wakes: Vec<DueWake>) {
        let now = self.clock.instant();
        let mut by_carrier = Vec::new();
        let mut carrier_batch = Vec::new();
        let mut by_precise = Vec::new();
        let unhealthy = self.carrier.as_ref().filter(|carrier| !carrier.is_healthy());
        for due_wake in due_wakes {
            let (remaining, reach) = (due_wake.remaining(now), self.reach(&due_wake.wake.kind));
            match self.next_hop(remaining, reach).0 {
                NextHop::Carrier(hop) => {
                    carrier_batch.push(Departure {
                        wake: due_wake.wake.clone(),
                        delay: hop.delay(),
                    });
                    by_carrier.push(due_wake);
                }
                NextHop::Precise(_) => {
                    let missed =
                        unhealthy.and_then(|carrier| self.carrier_leg(&*carrier.backend, remaining, reach));
                    self.rerouted(usize::from(missed.is_some()));
                    by_precise.push(due_wake);
                }
            }
        }
        // Both at once: wake-ups that are due soon do not wait for a carrier that does not answer.
        let (refused, ()) = tokio::join!(
            biased;
            self.send_by_carrier(by_carrier, carrier_batch),
            self.send_precise(by_precise),
        );
        self.send_precise(refused).await;
    }

    /// Sends by the carrier and returns those of `due_wakes` that it did not take; `batch` is their departures.
    async fn send_by_carrier(&self, due_wakes: Vec<DueWake>, batch: Vec<Departure>) -> Vec<DueWake> {
        let Some(carrier) = self.carrier.as_ref().filter(|_| !batch.is_empty()) else {
            return Vec::new();
        };
        let mut failed = Vec::new();
        match self.send_to(&carrier.backend, &batch).await {
            Ok(()) => carrier.failures.succeeded(),
            Err(SendError {
                failed: places,
                cause,
            }) => {
                failed = places;
                carrier.missed(batch.len(), failed.len(), &cause);
            }
        }
        let sent = batch.len().saturating_sub(failed.len());
        self.counters.sent_by_carrier.add(sent);
        wakeups(WokenBy::Carrier.word(), "sent", sent);
        self.rerouted(failed.len());
        let refused = failed
            .into_iter()
            .filter_map(|place| due_wakes.get(place).cloned());
        refused.collect()
    }

    async fn send_precise(&self, due_wakes: Vec<DueWake>) {
        if due_wakes.is_empty() {
            return;
        }
        let now = self.clock.instant();
        let batch: Vec<_> = due_wakes
            .into_iter()
            .map(|due_wake| {
                let remaining = due_wake.remaining(now);
                let reach = self.reach(&due_wake.wake.kind);
                let (next, _) = self.precise_hop(remaining, reach);
                Departure {
                    wake: due_wake.wake,
                    delay: next.delay(),
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
            warn!(
                backend = self.precise.name(), wakes = failed, %cause,
                "wake-ups could not be sent, so their tasks wait for the sweep and are up to half a second late; \
                 see that the backend is up"
            );
        }
        let sent = batch.len().saturating_sub(failed);
        self.counters.sent_precise.add(sent);
        wakeups(WokenBy::Precise.word(), "sent", sent);
        self.counters.left_to_sweep.add(failed);
        wakeups(WokenBy::Precise.word(), "left", failed);
    }

    /// Counts wake-ups that go to the precise backend in place of the carrier.
    fn rerouted(&self, count: usize) {
        self.counters.rerouted.add(count);
        wakeups(WokenBy::Carrier.word(), "rerouted", count);
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

    /// Removes wake-ups that are no longer needed from the precise backend. On a broker nothing can be removed.
    pub(crate) async fn remove(&self, wakes: &[Wake]) {
        let result = self
            .clock
            .timeout(defaults::SEND_TIMEOUT, self.precise.remove(wakes))
            .await;
        let result = result.unwrap_or_else(|| Err(timed_out(self.precise.name())));
        if let Err(cause) = result {
            // They arrive, name a past version and are dropped.
            warn!(
                backend = self.precise.name(), wakes = wakes.len(), %cause,
                "unneeded wake-ups could not be removed; each costs one read of its row when it arrives, and \
                 nothing else"
            );
        }
    }

    /// Checks an unhealthy carrier again and again until it is healthy. Never ends.
    pub(crate) async fn watch(&self) {
        let Some(carrier) = &self.carrier else {
            return std::future::pending().await;
        };
        loop {
            while carrier.is_healthy() {
                carrier.became_unhealthy.notified().await;
            }
            self.clock.sleep(defaults::HEALTH_EVERY).await;
            if let Some(Ok(())) = self
                .clock
                .timeout(defaults::SEND_TIMEOUT, carrier.backend.health())
                .await
            {
                carrier.failures.succeeded();
                carrier.healthy.store(true, Ordering::Relaxed);
                info!(
                    backend = carrier.backend.name(),
                    "the backend answers again and receives wake-ups"
                );
            }
        }
    }
}

impl CarrierBackend {
    fn is_healthy(&self) -> bool {
        self.healthy.load(Ordering::Relaxed)
    }

    /// Records that some or all wake-ups of a batch were not taken.
    fn missed(&self, batch: usize, failed: usize, cause: &Error) {
        debug!(backend = self.backend.name(), wakes = failed, %cause, "wake-ups not sent; these go to the precise backend");
        if failed < batch {
            self.failures.succeeded();
        } else if self.failures.failed() && self.healthy.swap(false, Ordering::Relaxed) {
            warn!(
                backend = self.backend.name(),
                %cause,
                "the backend takes nothing, so wake-ups go to the precise one until it does; nothing is late, but \
                 that one has more to do: see that it is up"
            );
            self.became_unhealthy.notify_one();
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
