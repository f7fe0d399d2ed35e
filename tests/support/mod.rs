//! The base of the tests of the scheduler and of the worker: one store, faultless backends and workers on virtual time,
//! so that every moment can be asserted to the millisecond.

mod meddled;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::backend::{Backend, Delays, Reach, WokenBy};
use delayline::clock::Clock;
use delayline::delay::Routing;
use delayline::expected::Check;
use delayline::store::{Claim, History, MemoryStore, Page, Store, Sweep, Target};
use delayline::testing::{Faults, FaultyBackend};
use delayline::{
    Context, Error, Failure, Kind, Outcome, Scheduler, State, Task, TaskId, Timestamp, Worker, defaults,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) use meddled::{Meddled, Op};

/// When every simulated clock starts.
pub(crate) const START: i64 = 1_000_000_000_000;

/// The kind of most tasks here.
pub(crate) const KIND: &str = "order.cancel";

pub(crate) const ROCKETMQ: &str = delayline::delay::ROCKETMQ_LEVELS;

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The moment `millis` after the start.
pub(crate) const fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(START + millis)
}

/// One store, its backends and a scheduler.
pub(crate) struct World {
    /// The scheduler's and the workers' clock.
    pub(crate) clock: Clock,
    /// The store's own, which may be ahead or behind.
    pub(crate) store_clock: Clock,
    /// The rows, without faults in between.
    pub(crate) rows: MemoryStore,
    /// The store as the scheduler and its workers see it.
    pub(crate) store: Arc<Meddled>,
    pub(crate) levels: Option<Arc<FaultyBackend>>,
    pub(crate) precise: Arc<FaultyBackend>,
    pub(crate) scheduler: Scheduler,
    pub(crate) runs: Runs,
}

/// The parts of a world.
pub(crate) struct Setup {
    pub(crate) seed: u64,
    /// The carrier's table; none: no such backend.
    pub(crate) table: Option<&'static str>,
    /// In place of a table: up to how long the carrier holds any delay.
    pub(crate) timers: Option<Duration>,
    /// A day by default, which is long even where time is virtual, as a worker reads the store several times a second.
    pub(crate) horizon: Duration,
    pub(crate) level_faults: Faults,
    pub(crate) precise_faults: Faults,
    /// By how much the store's clock is ahead of the scheduler's, in ms.
    pub(crate) store_ahead: i64,
    pub(crate) history: Duration,
    /// Which events of tasks are recorded.
    pub(crate) noted: History,
    /// The kinds that follow a table of their service's own.
    pub(crate) follow: Vec<(&'static str, Check)>,
    /// Whether the scheduler does without a precise backend of its own, and has the table.
    pub(crate) without_precise: bool,
    /// Wraps the carrier.
    pub(crate) wrap_levels: fn(Arc<FaultyBackend>) -> Arc<dyn Backend>,
    pub(crate) wrap_precise: fn(Arc<FaultyBackend>) -> Arc<dyn Backend>,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            seed: 1,
            table: None,
            timers: None,
            horizon: defaults::HORIZON,
            level_faults: Faults::default(),
            precise_faults: Faults::default(),
            store_ahead: 0,
            history: defaults::HISTORY,
            noted: History::Off,
            follow: Vec::new(),
            without_precise: false,
            wrap_levels: |backend| backend,
            wrap_precise: |backend| backend,
        }
    }
}

impl Setup {
    pub(crate) fn build(self) -> World {
        let clock = Clock::simulated(self.seed);
        let store_clock = clock.skewed(self.store_ahead);
        let rows = MemoryStore::with_clock(store_clock.clone()).keep_history(self.history);
        let store = Arc::new(Meddled::new(Arc::new(rows.clone()), clock.clone()));
        let faulty = |reach, usual_lateness, faults| {
            let delays = Delays {
                reach,
                usual_lateness,
            };
            Arc::new(FaultyBackend::new(delays, faults, clock.clone()))
        };
        let levels = self.table.map(|table| {
            let reach = Reach::Levels(table.parse().unwrap());
            faulty(reach, defaults::LEVELS_LATENESS, self.level_faults)
        });
        let timers = self.timers.map(|max| {
            let reach = Reach::Any { max };
            faulty(reach, defaults::TIMERS_LATENESS, self.level_faults)
        });
        let levels = levels.or(timers);
        let reach = Reach::Any { max: Duration::MAX };
        let precise = faulty(reach, defaults::PRECISE_LATENESS, self.precise_faults);
        let mut builder = Scheduler::builder(store.clone())
            .clock(clock.clone())
            .routing(Routing::default().horizon(self.horizon))
            .history(self.noted);
        if !self.without_precise {
            builder = builder.precise((self.wrap_precise)(precise.clone()));
        }
        for (kind, check) in self.follow {
            builder = builder.follow(kind, check);
        }
        if let Some(levels) = &levels {
            builder = builder.carrier((self.wrap_levels)(levels.clone()));
        }
        World {
            scheduler: builder.build().unwrap(),
            clock,
            store_clock,
            rows,
            store,
            levels,
            precise,
            runs: Runs::default(),
        }
    }
}

impl World {
    pub(crate) fn new() -> Self {
        Setup::default().build()
    }

    pub(crate) fn with_levels(table: &'static str) -> Self {
        Setup {
            table: Some(table),
            ..Setup::default()
        }
        .build()
    }

    /// Returns the milliseconds since the start, by the store's clock.
    pub(crate) fn now(&self) -> i64 {
        self.store_clock.now().as_millis() - START
    }

    /// Makes another scheduler over the same store and precise backend, as another process would have.
    pub(crate) fn another_scheduler(&self) -> Scheduler {
        self.another_scheduler_over(self.store.clone())
    }

    pub(crate) fn another_scheduler_over(&self, store: Arc<dyn Store>) -> Scheduler {
        Scheduler::builder(store)
            .clock(self.clock.clone())
            .precise(self.precise.clone())
            .build()
            .unwrap()
    }

    /// Makes a worker with a handler of [`KIND`] that records each run and is done.
    pub(crate) fn worker(&self) -> Worker {
        Worker::new(&self.scheduler).handle(KIND, self.runs.handler(&self.store_clock))
    }

    /// Starts that worker.
    pub(crate) fn work(&self) -> Running {
        Running::start(self.worker())
    }

    pub(crate) async fn row(&self, target: impl Into<Target>) -> Task {
        self.rows
            .find(&target.into())
            .await
            .unwrap()
            .expect("there is a row")
    }

    /// Reads every row of a kind and state.
    pub(crate) async fn rows_in(&self, kind: &str, state: State) -> Vec<Task> {
        self.list(kind, state, 1_000_000).await
    }

    async fn has_any(&self, state: State) -> bool {
        !self.list(KIND, state, 1).await.is_empty()
    }

    async fn list(&self, kind: &str, state: State, limit: usize) -> Vec<Task> {
        let page = Page::new(kind, state).limit(limit);
        self.rows.list(&page).await.unwrap()
    }

    pub(crate) async fn count(&self, state: State) -> usize {
        self.rows_in(KIND, state).await.len()
    }

    /// Reads every row of [`KIND`], whatever its state.
    pub(crate) async fn every_row(&self) -> Vec<Task> {
        let mut rows = Vec::new();
        for state in State::ALL {
            rows.extend(self.rows_in(KIND, state).await);
        }
        rows
    }

    /// Does what another worker without handlers would: ends the leases that have ended by the store's clock once that
    /// clock is stepped by `ahead`, then steps it back.
    pub(crate) async fn expire_leases(&self, ahead: Duration) {
        let ahead = i64::try_from(ahead.as_millis()).unwrap();
        self.store_clock.step(ahead);
        let none = Claim {
            owner: "none".into(),
            lease: secs(30),
            room: std::collections::BTreeMap::new(),
            bytes: usize::MAX,
            history: Default::default(),
        };
        let sweep = Sweep {
            limit: 1_000,
            retake: secs(1),
            ahead: None,
        };
        self.rows.sweep(&none, &sweep).await.unwrap();
        self.store_clock.step(-ahead);
    }

    /// Claims every due row of [`KIND`], as another worker would; returns the rows.
    pub(crate) async fn claim_elsewhere(&self, owner: &str) -> Vec<Task> {
        let claim = Claim {
            owner: owner.into(),
            lease: secs(1_000),
            room: [(Kind::from(KIND), 1_000)].into(),
            bytes: usize::MAX,
            history: Default::default(),
        };
        self.rows.ready(&claim).await.unwrap().found
    }

    /// Lets virtual time pass.
    pub(crate) async fn pass(&self, time: Duration) {
        self.clock.sleep(time).await;
    }

    /// Lets virtual time pass until `millis` after the start, by the scheduler's clock.
    pub(crate) async fn pass_until(&self, millis: i64) {
        let left = START + millis - self.clock.now().as_millis();
        self.clock
            .sleep(ms(u64::try_from(left).expect("a moment to come")))
            .await;
    }

    /// Lets virtual time pass until no row of [`KIND`] is live, for an hour of it at the most.
    pub(crate) async fn settle(&self) {
        for _ in 0..360_000 {
            if !self.has_any(State::Scheduled).await && !self.has_any(State::Running).await {
                return;
            }
            self.pass(ms(10)).await;
        }
        panic!("after an hour these are still live: {:?}", self.every_row().await);
    }
}

/// A handler's start.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) task: Task,
    /// Milliseconds since the start, by the store's clock.
    pub(crate) at: i64,
    /// The handler's own figure.
    pub(crate) lateness: Duration,
    pub(crate) woken_by: WokenBy,
}

/// The starts, in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Runs(Arc<Mutex<Vec<Run>>>);

pub(crate) type Answered = std::pin::Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send>>;

impl Runs {
    pub(crate) fn note(&self, context: &Context, clock: &Clock) {
        self.0.lock().unwrap().push(Run {
            task: context.task().clone(),
            at: clock.now().as_millis() - START,
            lateness: context.lateness(),
            woken_by: context.woken_by(),
        });
    }

    pub(crate) fn all(&self) -> Vec<Run> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// Returns when each was started.
    pub(crate) fn times(&self) -> Vec<i64> {
        self.all().iter().map(|run| run.at).collect()
    }

    pub(crate) fn ids(&self) -> Vec<TaskId> {
        self.all().iter().map(|run| run.task.id).collect()
    }

    pub(crate) fn of(&self, id: TaskId) -> Vec<Run> {
        self.all().into_iter().filter(|run| run.task.id == id).collect()
    }

    /// Makes a handler that records each run and is done.
    pub(crate) fn handler(
        &self,
        clock: &Clock,
    ) -> impl Fn(serde_json::Value, Context) -> Answered + Send + Sync + use<> {
        self.handler_that(clock, |_| Box::pin(async { Ok(Outcome::Done) }))
    }

    /// Makes a handler that records each run and then does as `what` says.
    pub(crate) fn handler_that<W>(
        &self,
        clock: &Clock,
        what: W,
    ) -> impl Fn(serde_json::Value, Context) -> Answered + Send + Sync + use<W>
    where
        W: Fn(Context) -> Answered + Send + Sync + 'static,
    {
        let (runs, clock) = (self.clone(), clock.clone());
        move |_, context| {
            runs.note(&context, &clock);
            what(context)
        }
    }
}

/// A running worker; dropping it is a crash.
pub(crate) struct Running {
    stop: Option<oneshot::Sender<()>>,
    worker: JoinHandle<Result<(), Error>>,
}

impl Running {
    pub(crate) fn start(worker: Worker) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let worker = tokio::spawn(worker.run_until(async move {
            // It was stopped, or its owner is gone.
            let _ = stopped.await;
        }));
        Self {
            stop: Some(stop),
            worker,
        }
    }

    /// Asks it to stop.
    pub(crate) fn tell(&mut self) {
        drop(self.stop.take());
    }

    /// Returns its result when it has stopped.
    pub(crate) async fn ended(mut self) -> Result<(), Error> {
        (&mut self.worker).await.unwrap()
    }

    /// Stops it, and returns its result.
    pub(crate) async fn stop(mut self) -> Result<(), Error> {
        self.tell();
        self.ended().await
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.worker.is_finished()
    }

    /// Ends it in the middle of whatever it does.
    pub(crate) async fn crash(self) {
        self.worker.abort();
        drop(self);
        // It is gone when the runtime has had a turn.
        tokio::task::yield_now().await;
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.worker.abort();
    }
}
