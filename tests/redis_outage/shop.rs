//! A service whose wake-ups travel through Redis.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::backend::RedisBackend;
use delayline::{Outcome, Policy, Scheduler, TaskId, Timestamp, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::pace::is_behind;
use crate::service::{OnSqlite, Service};
use crate::{now, until};

pub(crate) const KIND: &str = "order.cancel";

/// A start of a handler.
#[derive(Clone, Copy, Debug)]
struct Run {
    id: TaskId,
    at: Timestamp,
    late: Duration,
    is_early: bool,
}

/// A database in a file, a scheduler and a worker in this process.
///
/// The effect of a task is an entry here: no file takes thousands of transactions a second, one for each handler,
/// beside those of the store.
pub(crate) struct Shop {
    pub(crate) scheduler: Scheduler,
    scheduled: Mutex<BTreeSet<TaskId>>,
    runs: Arc<Mutex<Vec<Run>>>,
    stop: oneshot::Sender<()>,
    working: JoinHandle<Result<(), delayline::Error>>,
    _service: OnSqlite,
}

impl Shop {
    pub(crate) async fn open(redis: &str) -> Self {
        let service = OnSqlite::new().await;
        let precise = RedisBackend::new(redis).unwrap();
        let scheduler = Scheduler::builder(service.store())
            .precise(Arc::new(precise))
            .build()
            .unwrap();
        let runs = Arc::<Mutex<Vec<Run>>>::default();
        let noted = runs.clone();
        let policy = Policy::new().concurrency(256);
        let worker = Worker::new(&scheduler).handle_with(KIND, policy, move |(), context| {
            let at = now();
            let run = Run {
                id: context.id(),
                at,
                late: context.lateness(),
                is_early: at < context.due_at(),
            };
            noted.lock().unwrap().push(run);
            async { Ok(Outcome::Done) }
        });
        let (stop, stopped) = oneshot::channel();
        let working = tokio::spawn(worker.run_until(async move {
            let _ = stopped.await;
        }));
        Self {
            scheduler,
            scheduled: Mutex::default(),
            runs,
            stop,
            working,
            _service: service,
        }
    }

    /// Records that tasks must run.
    pub(crate) fn expect(&self, ids: impl IntoIterator<Item = TaskId>) {
        self.scheduled.lock().unwrap().extend(ids);
    }

    /// How many handlers were started.
    pub(crate) fn started(&self) -> usize {
        self.runs.lock().unwrap().len()
    }

    /// Says whether this machine is too slow for the load.
    pub(crate) fn is_behind(&self) -> bool {
        let runs = self.runs.lock().unwrap();
        runs.last().is_some_and(|run| is_behind(run.late, run.at))
    }

    /// How many wake-ups were received through Redis.
    pub(crate) fn received(&self) -> u64 {
        self.scheduler.stats().received
    }

    /// Waits until all expected tasks have run, and asserts that each did so once and none too early. Then it ends.
    pub(crate) async fn assert_each_ran_once(self) {
        let scheduled = self.scheduled.lock().unwrap().clone();
        until("all tasks run", || self.started() >= scheduled.len()).await;
        self.stop.send(()).unwrap();
        self.working.await.unwrap().unwrap();
        let stats = self.scheduler.stats();
        self.scheduler.close().await.unwrap();

        let runs = self.runs.lock().unwrap();
        let mut late: Vec<_> = runs.iter().map(|run| run.late).collect();
        late.sort_unstable();
        let [p50, p99, max] = [50, 99, 100].map(|percent| late[(late.len() * percent).div_ceil(100) - 1]);
        println!(
            "{} tasks, late p50 {p50:.0?}, p99 {p99:.0?}, max {max:.0?}; left to the sweep {}, claimed by it {}",
            runs.len(),
            stats.left_to_sweep,
            stats.claimed_by_sweep
        );
        let started: BTreeSet<_> = runs.iter().map(|run| run.id).collect();
        let lost = scheduled.difference(&started).count();
        let early = runs.iter().filter(|run| run.is_early).count();
        let twice = runs.len() - started.len();
        let strange = started.difference(&scheduled).count();
        assert_eq!(
            (lost, early, twice, strange),
            (0, 0, 0, 0),
            "lost, early, twice, cancelled ones"
        );
    }
}
