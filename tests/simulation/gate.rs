//! Where a simulated process meets the world, and where it dies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use delayline::backend::{Arrival, Backend, Delays, Departure, SendError};
use delayline::store::{
    Ahead, Change, Claim, Guarded, Hop, Looked, NewRow, Page, Pending, Renewal, Settlement, Stamped, Store,
    Sweep,
};
use delayline::{Answer, Clock, Error, Kind, Scheduled, State, Target, Task, Timestamp, Wake};
use tokio::sync::Notify;

use crate::history::History;

/// Every call of a process to its store and its backends goes through its gate, which takes time, fails now and
/// then, and kills the process before or after any one of them.
pub(crate) struct Gate {
    pub(crate) clock: Clock,
    pub(crate) history: Arc<History>,
    /// Calls until the process dies.
    life: AtomicU64,
    dead: AtomicBool,
    died: Notify,
    /// Calls of the store that fail, in percent; half of them after they took effect.
    failing: AtomicU64,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    pub(crate) fn new(clock: Clock, history: Arc<History>, life: u64, failing: u64) -> Self {
        Self {
            clock,
            history,
            life: AtomicU64::new(life),
            dead: AtomicBool::new(false),
            died: Notify::new(),
            failing: AtomicU64::new(failing),
        }
    }

    /// Ends when the process has died.
    pub(crate) async fn death(&self) {
        while !self.dead.load(Ordering::Relaxed) {
            self.died.notified().await;
        }
    }

    pub(crate) fn heal(&self) {
        self.life.store(u64::MAX, Ordering::Relaxed);
        self.failing.store(0, Ordering::Relaxed);
    }

    /// A little time passes; perhaps the process dies here.
    async fn step(&self) {
        let life = self.life.load(Ordering::Relaxed);
        if life == 0 {
            self.dead.store(true, Ordering::Relaxed);
            self.died.notify_one();
            // Until the process is dropped.
            return std::future::pending().await;
        }
        if life != u64::MAX {
            self.life.store(life - 1, Ordering::Relaxed);
        }
        let pause = self.clock.random_below(4);
        if pause > 0 {
            self.clock.sleep(Duration::from_millis(pause)).await;
        }
    }

    fn fails(&self) -> Result<(), Error> {
        let failing = self.failing.load(Ordering::Relaxed);
        if failing > 0 && self.clock.random_below(200) < failing {
            return Err(Error::Store {
                store: "simulated",
                transient: true,
                source: "failed by chance".into(),
            });
        }
        Ok(())
    }
}

/// A process's way to the one store.
#[derive(Debug)]
pub(crate) struct GatedStore {
    pub(crate) gate: Arc<Gate>,
    pub(crate) store: Arc<dyn Store>,
}

/// Before and after the call: time, failure, death. Right after it, with nothing in between: what became of the rows.
macro_rules! through {
    ($self:ident, $what:literal, $call:expr) => {{
        $self.gate.step().await;
        $self.gate.fails()?;
        let result = $call.await;
        $self.gate.history.look(&*$self.store, $what).await;
        $self.gate.step().await;
        $self.gate.fails()?;
        result
    }};
}

#[async_trait]
impl Store for GatedStore {
    fn name(&self) -> &'static str {
        "simulated"
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        through!(self, "now", self.store.now())
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        through!(self, "insert", self.store.insert(rows))
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        through!(self, "change", self.store.change(changes))
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<Looked>, Error> {
        through!(self, "arrive", self.store.arrive(wakes, claim))
    }

    async fn hop(&self, hops: &[Hop]) -> Result<Vec<Guarded>, Error> {
        through!(self, "hop", self.store.hop(hops))
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        through!(self, "ready", self.store.ready(claim))
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<Looked>, Error> {
        through!(self, "sweep", self.store.sweep(claim, sweep))
    }

    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<Guarded>, Error> {
        through!(self, "settle", self.store.settle(settlements))
    }

    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        through!(self, "renew", self.store.renew(claims, lease))
    }

    async fn upcoming(&self, ahead: Ahead) -> Result<Stamped<Vec<Pending>>, Error> {
        through!(self, "upcoming", self.store.upcoming(ahead))
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        through!(self, "find", self.store.find(target))
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        through!(self, "list", self.store.list(page))
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        through!(self, "kinds", self.store.kinds(state, after, limit))
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        through!(self, "purge", self.store.purge(limit))
    }
}

/// A process's way to a backend that outlives it.
#[derive(Debug)]
pub(crate) struct GatedBackend {
    pub(crate) gate: Arc<Gate>,
    pub(crate) backend: Arc<dyn Backend>,
}

#[async_trait]
impl Backend for GatedBackend {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn delays(&self) -> Delays {
        self.backend.delays()
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        self.gate.step().await;
        let result = self.backend.send(batch).await;
        self.gate.step().await;
        result
    }

    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        self.gate.step().await;
        self.backend.remove(wakes).await
    }

    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        self.gate.step().await;
        self.backend.receive(max).await
    }

    async fn acknowledge(&self, arrivals: Vec<Arrival>) {
        self.gate.step().await;
        self.backend.acknowledge(arrivals).await;
    }

    async fn health(&self) -> Result<(), Error> {
        self.gate.step().await;
        self.backend.health().await
    }

    async fn close(&self) -> Result<(), Error> {
        self.backend.close().await
    }
}
