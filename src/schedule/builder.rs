//! What a scheduler is made of.

use std::collections::BTreeMap;
use std::sync::{Arc, RwLock};

use super::Scheduler;
use crate::backend::Backend;
use crate::clock::Clock;
use crate::delay::Routing;
use crate::expected::Check;
use crate::observe::events::Teller;
use crate::observe::metrics::Metrics;
use crate::route::background_sender::BackgroundSender;
use crate::route::router::Router;
use crate::schedule::actor::Actor;
use crate::schedule::kernel::Kernel;
use crate::stats::Counters;
use crate::store::store_time::StoreTime;
use crate::store::{History, Limited, Store};
use crate::{Error, Kind, defaults};

/// Puts a scheduler together; made by [`Scheduler::builder`].
#[derive(Debug)]
pub struct SchedulerBuilder {
    store: Arc<dyn Store>,
    carrier: Option<Arc<dyn Backend>>,
    precise: Option<Arc<dyn Backend>>,
    routing: Routing,
    checks: Vec<(Kind, Check)>,
    clock: Clock,
    payload_limit: usize,
    history: History,
}

impl SchedulerBuilder {
    /// With the defaults.
    pub(super) fn over(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            carrier: None,
            precise: None,
            routing: Routing::default(),
            checks: Vec::new(),
            clock: Clock::system(),
            payload_limit: defaults::PAYLOAD_LIMIT,
            history: History::Off,
        }
    }

    /// The backend that carries most of each delay and need not be precise: one that chains it through levels, such as
    /// `RocketMqBackend`, or one that holds any delay, such as `RocketMqTimers`. Default: none.
    #[must_use]
    pub fn carrier(mut self, backend: Arc<dyn Backend>) -> Self {
        self.carrier = Some(backend);
        self
    }

    /// The backend for the last stretch, and for all delays when the carrier is away. Default: the store
    /// itself, in which a worker looks ahead.
    #[must_use]
    pub fn precise(mut self, backend: Arc<dyn Backend>) -> Self {
        self.precise = Some(backend);
        self
    }

    /// Which delays take which backend. Default: [`Routing::default`].
    #[must_use]
    pub fn routing(mut self, routing: Routing) -> Self {
        self.routing = routing;
        self
    }

    /// Lets the tasks of `kind` follow the service's own table, which `check` asks; at most one check a kind.
    ///
    /// To be said in every process that schedules or runs tasks of the kind: each keeps its own wake-ups short.
    #[must_use]
    pub fn follow(mut self, kind: impl Into<Kind>, check: Check) -> Self {
        self.checks.push((kind.into(), check));
        self
    }

    /// How many bytes a payload may have; a task with more is refused when it is scheduled. Default 1 MiB.
    ///
    /// Large payloads cost memory in every worker, and time of the store at every claim: better keep them where they are,
    /// and schedule their name. A server may allow less, such as MySQL by its `max_allowed_packet`.
    #[must_use]
    pub fn payload_limit(mut self, bytes: usize) -> Self {
        self.payload_limit = bytes;
        self
    }

    /// Sets which events of a task this scheduler and its workers record in its row, for [`Scheduler::explain`] to show.
    /// Default: none, which costs nothing.
    ///
    /// Set it alike in every process: what another one does not record is missing, and nothing else goes wrong.
    #[must_use]
    pub fn history(mut self, history: History) -> Self {
        self.history = history;
        self
    }

    /// The source of time and chance. Default: the machine's.
    #[must_use]
    pub fn clock(mut self, clock: Clock) -> Self {
        self.clock = clock;
        self
    }

    /// The scheduler. Fails if a backend cannot do what it was given for, or a check cannot be used.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime: sending goes on in the background.
    pub fn build(self) -> Result<Scheduler, Error> {
        let Self {
            store,
            carrier,
            precise,
            routing,
            checks: given,
            clock,
            payload_limit,
            history,
        } = self;
        let store: Arc<dyn Store> = Arc::new(Limited::new(store, clock.clone()));
        let mut checks = BTreeMap::new();
        let mut reach = BTreeMap::new();
        for (kind, check) in given {
            kind.check()?;
            reach.insert(kind.clone(), check.reach()?);
            if checks.insert(kind.clone(), check).is_some() {
                return Err(Error::invalid("kind", kind, "allowed is one check a kind"));
            }
        }
        let time = Arc::new(StoreTime::new(clock.clone()));
        let counters = Arc::new(Counters::default());
        let router = Router::new(
            carrier,
            precise,
            routing,
            reach,
            clock.clone(),
            Arc::clone(&counters),
        )?;
        let router = Arc::new(router);
        let sender = BackgroundSender::new(Arc::clone(&router), clock.clone(), Arc::clone(&counters));
        let kernel = Kernel {
            store,
            router,
            checks,
            time,
            clock,
            counters,
            listening: Default::default(),
            sender,
            due: Default::default(),
            shared_by_claims: Default::default(),
            pauses: Default::default(),
            events: Teller::new(defaults::EVENTS),
            failures: Default::default(),
            metrics: Metrics::new(),
            histories: RwLock::new(history.into()),
        };
        Ok(Scheduler {
            kernel: Arc::new(kernel),
            actor: Actor::default(),
            payload_limit,
        })
    }
}
