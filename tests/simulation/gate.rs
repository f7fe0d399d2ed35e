//! Where a simulated process meets the world, and where it dies.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use delayline::backend::{Arrival, Backend, Delays, Departure, SendError, Wake};
use delayline::clock::Clock;
use delayline::store::{
    Change, Claim, Guarded, Keep, NewRow, Note, Noted, Page, PollResult, Renewal, Stamped, Step, Store,
    Sweep, Target, Transaction,
};
use delayline::{Answer, Error, Kind, Scheduled, State, Task, TaskId, Timestamp};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::ground::{Ground, Open};
use crate::ledger::short;
use crate::plan::StoreFaults;

/// Every call of a process to its store and its backends goes through its gate, which takes time, fails now and then,
/// and kills the process before or after any one of them.
pub(crate) struct Gate {
    pub(crate) life: u64,
    /// The true one, with all chance.
    pub(crate) clock: Clock,
    pub(crate) ground: Arc<Ground>,
    /// Calls until the process dies.
    steps: AtomicU64,
    dead: AtomicBool,
    died: Notify,
    faults: Mutex<StoreFaults>,
    /// Until when the store is out of this process's reach, and whether it then says so.
    outage: Mutex<Option<(Instant, bool)>>,
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate {}", self.life)
    }
}

/// What becomes of a call.
enum Fate {
    Answered,
    Late(Duration),
    Failed,
    Lost,
    Hangs { has_effect: bool },
}

impl Gate {
    pub(crate) fn new(life: u64, clock: Clock, ground: Arc<Ground>, steps: u64, faults: StoreFaults) -> Self {
        Self {
            life,
            clock,
            ground,
            steps: AtomicU64::new(steps),
            dead: AtomicBool::new(false),
            died: Notify::new(),
            faults: Mutex::new(faults),
            outage: Mutex::default(),
        }
    }

    /// Ends when the process has died.
    pub(crate) async fn death(&self) {
        while !self.dead.load(Ordering::Relaxed) {
            self.died.notified().await;
        }
    }

    pub(crate) fn heal(&self) {
        self.steps.store(u64::MAX, Ordering::Relaxed);
        *self.faults.lock().unwrap() = StoreFaults::default();
        *self.outage.lock().unwrap() = None;
    }

    /// The store is out of reach for so long.
    pub(crate) fn cut_off(&self, span: Duration, refuses: bool) {
        *self.outage.lock().unwrap() = Some((Instant::now() + span, refuses));
    }

    /// A little time passes; perhaps the process dies here.
    async fn step(&self) {
        let steps = self.steps.load(Ordering::Relaxed);
        if steps == 0 {
            self.dead.store(true, Ordering::Relaxed);
            self.died.notify_one();
            // Until the process is dropped.
            return std::future::pending().await;
        }
        if steps != u64::MAX {
            self.steps.store(steps - 1, Ordering::Relaxed);
        }
        let pause = self.clock.random_below(8);
        if (1..4).contains(&pause) {
            tokio::time::sleep(Duration::from_millis(pause)).await;
        }
    }

    fn fate(&self) -> Fate {
        if let Some((until, refuses)) = *self.outage.lock().unwrap()
            && Instant::now() < until
        {
            return if refuses {
                Fate::Failed
            } else {
                Fate::Hangs { has_effect: false }
            };
        }
        let StoreFaults {
            fail,
            lose,
            hang,
            late,
        } = *self.faults.lock().unwrap();
        if fail + lose + hang + late == 0 {
            return Fate::Answered;
        }
        let drawn = self.clock.random_below(1_000);
        if drawn < fail {
            Fate::Failed
        } else if drawn < fail + lose {
            Fate::Lost
        } else if drawn < fail + lose + hang {
            Fate::Hangs {
                has_effect: drawn.is_multiple_of(2),
            }
        } else if drawn < fail + lose + hang + late {
            Fate::Late(Duration::from_millis(self.clock.random_below(9_000)))
        } else {
            Fate::Answered
        }
    }

    /// A call of the store, whose answer says what the time is there.
    async fn stamped<T>(&self, hearer: Hearer, effect: impl Future<Output = T>) -> Result<T, Error> {
        self.tried(hearer, async { Ok(effect.await) }).await
    }

    /// A call of the store, whose answer says what the time is there unless it is an error.
    async fn tried<T>(
        &self,
        hearer: Hearer,
        effect: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let asked = self.ground.ledger.elapsed();
        let (answer, given_after) = self.counted(effect).await?;
        if hearer == Hearer::Worker && answer.is_ok() {
            self.ground.ledger.heard(self.life, asked, given_after);
        }
        answer
    }

    /// A call of the store.
    async fn call<T>(&self, effect: impl Future<Output = T>) -> Result<T, Error> {
        let (answer, _) = self.counted(effect).await?;
        Ok(answer)
    }

    /// Before and after the effect of a call time, failure, death; and after how many steps of the store's clock it had it.
    async fn counted<T>(&self, effect: impl Future<Output = T>) -> Result<(T, usize), Error> {
        self.step().await;
        let fate = self.fate();
        if let Fate::Failed | Fate::Hangs { has_effect: false } = fate {
            if let Fate::Failed = fate {
                return Err(failed());
            }
            return std::future::pending().await;
        }
        let answer = effect.await;
        let given_after = self.ground.ledger.steps();
        match fate {
            Fate::Hangs { .. } => return std::future::pending().await,
            Fate::Late(span) => tokio::time::sleep(span).await,
            _ => {}
        }
        self.step().await;
        if let Fate::Lost = fate {
            return Err(failed());
        }
        Ok((answer, given_after))
    }
}

fn failed() -> Error {
    Error::Store {
        store: "simulated",
        transient: true,
        source: "failed by chance".into(),
    }
}

/// Which part of a process hears of the store's time by an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hearer {
    /// The process's worker, or the scheduler that it is beside.
    Worker,
    /// Something else in the same process, of which the worker knows nothing.
    Other,
}

/// A process's way to the one store.
#[derive(Debug)]
pub(crate) struct GatedStore(pub(crate) Arc<Gate>, pub(crate) Hearer);

#[async_trait]
impl Store for GatedStore {
    fn name(&self) -> &'static str {
        "simulated"
    }

    /// No process here says anything of kinds: the model knows one history of all.
    fn keep(&self, _: &Arc<BTreeMap<Kind, Keep>>) {}

    async fn now(&self) -> Result<Timestamp, Error> {
        self.0.stamped(self.1, async { self.0.ground.clock.now() }).await
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        self.0.stamped(self.1, self.0.ground.insert(rows)).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        self.0.stamped(self.1, self.0.ground.change(changes)).await
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        self.0.call(async { self.0.ground.history(id) }).await
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<PollResult>, Error> {
        let polled = self
            .0
            .stamped(self.1, async { self.0.ground.arrive(wakes, claim) })
            .await;
        let named = || Vec::from_iter(wakes.iter().map(|wake| (short(wake.id), wake.version)));
        let answer = || {
            polled
                .as_ref()
                .map(|polled| (polled.found.claimed.len(), &polled.found.waiting))
        };
        self.0
            .ground
            .ledger
            .note(|| format!("arrived at {}: {:?}: {:?}", self.0.life, named(), answer()));
        polled
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        self.0.stamped(self.1, async { self.0.ground.ready(claim) }).await
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<PollResult>, Error> {
        self.0
            .stamped(self.1, async { self.0.ground.sweep(claim, sweep) })
            .await
    }

    async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
        let ends = steps.iter().filter(|step| step.event.needs() == State::Running);
        let claims = ends.map(|step| (step.id, step.version));
        self.0.ground.ledger.settling(self.0.life, claims);
        self.0.call(async { self.0.ground.advance(steps) }).await
    }

    async fn renew(&self, renewals: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        let renewed = self
            .0
            .call(async { self.0.ground.renew(renewals, lease) })
            .await?;
        for (renewal, came) in renewals.iter().zip(&renewed) {
            if *came == Guarded::Lost {
                self.0
                    .ground
                    .ledger
                    .told_lost(self.0.life, renewal.id, renewal.version);
            }
        }
        Ok(renewed)
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        self.0.call(async { self.0.ground.find(target) }).await
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        self.0.call(async { self.0.ground.list(page) }).await
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        self.0
            .call(async { self.0.ground.kinds(state, after, limit) })
            .await
    }

    async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        self.0
            .stamped(self.1, async {
                self.0.ground.due_within(kind, state, spans, most)
            })
            .await
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        self.0.call(async { self.0.ground.purge(limit) }).await
    }
}

/// A transaction of a service, on a connection of the same process.
#[derive(Debug)]
pub(crate) struct GatedTransaction {
    gate: Arc<Gate>,
    hearer: Hearer,
    open: Open,
}

/// For how long a service waits for one statement of its own.
const TIME_LIMIT: Duration = Duration::from_secs(5);

impl GatedTransaction {
    /// `hearer` hears what its statements say of the time.
    pub(crate) fn begin(gate: &Arc<Gate>, hearer: Hearer) -> Self {
        Self {
            gate: Arc::clone(gate),
            hearer,
            open: Open::begin(&gate.ground),
        }
    }

    /// An error: whether it is committed is not known.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        let Self { gate, open, .. } = self;
        patient(gate.call(async move { open.commit() })).await
    }
}

async fn patient<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    tokio::time::timeout(TIME_LIMIT, call)
        .await
        .unwrap_or_else(|_| Err(failed()))
}

#[async_trait]
impl Transaction for GatedTransaction {
    async fn insert(&mut self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        patient(self.gate.tried(self.hearer, self.open.insert(rows))).await
    }

    async fn change(&mut self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        patient(self.gate.tried(self.hearer, self.open.change(changes))).await
    }

    async fn find(&mut self, target: &Target) -> Result<Option<Task>, Error> {
        patient(self.gate.call(async { self.open.find(target) })).await
    }

    async fn finish(&mut self, id: TaskId, version: u64, note: Note) -> Result<bool, Error> {
        patient(self.gate.call(async { self.open.finish(id, version, note) })).await?
    }
}

/// A process's way to a backend that outlives it.
#[derive(Debug)]
pub(crate) struct GatedBackend {
    pub(crate) gate: Arc<Gate>,
    pub(crate) backend: Arc<dyn Backend>,
    /// `levels` or `precise`.
    pub(crate) role: &'static str,
    /// Whether it is armed anew, with wake-ups that were sent before.
    pub(crate) resending: bool,
    /// How many sends hang, in per mille.
    pub(crate) hang: u64,
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
        let Gate { life, ground, .. } = &*self.gate;
        ground
            .ledger
            .sending(ground, *life, self.role, batch, self.resending);
        self.gate.step().await;
        if self.hang > 0 && self.gate.clock.random_below(1_000) < self.hang {
            return std::future::pending().await;
        }
        let result = self.backend.send(batch).await;
        self.gate.step().await;
        if let (Err(error), "levels") = (&result, self.role) {
            let refused = error.failed.iter().map(|&place| &batch[place].wake);
            ground.ledger.refused(*life, refused);
        }
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
        Ok(())
    }
}

/// The gates of the processes that live now, by their places.
pub(crate) type Gates = Mutex<BTreeMap<u64, (Arc<Gate>, Clock)>>;
