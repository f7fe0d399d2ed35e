//! A service with Redis alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::store::RedisStore;
use delayline::{Error, Outcome, Policy, Scheduler, TaskId, Timestamp, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::audit::{SHARDS, shard_of};
use crate::pace::is_behind;
use crate::shop::KIND;
use crate::{now, rate, until};

/// Short, so that a task that a master claimed for a worker which did not learn of it soon goes to another.
pub(super) const LEASE: Duration = Duration::from_secs(5);

/// A start of a handler.
#[derive(Clone, Copy, Debug)]
struct Run {
    id: TaskId,
    version: u64,
    /// When it was, by the clock of this machine, which is that of all masters.
    at: Timestamp,
    due_at: Timestamp,
    late: Duration,
}

/// The answer to a caller about a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// When it is due.
    pub(super) due_at: Timestamp,
    /// When it was cancelled, as far as a caller knows: at the answer.
    pub(super) cancelled_at: Option<Timestamp>,
    /// When the caller first asked for it.
    pub(super) asked: Instant,
}

/// A scheduler and a worker in this process, with rows and wake-ups in Redis alone.
pub(super) struct Shop {
    pub(super) scheduler: Scheduler,
    told: Mutex<BTreeMap<TaskId, Told>>,
    runs: Arc<Mutex<Vec<Run>>>,
    /// How often a verb failed, and the longest time in ms from when one was first tried until it was answered.
    failed: AtomicU64,
    longest: AtomicU64,
    stop: oneshot::Sender<()>,
    working: JoinHandle<Result<(), Error>>,
}

/// The differences between the outcomes of tasks and the answers to callers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Losses {
    /// They never ran.
    pub(super) lost: usize,
    /// They ran before they were due, by the answers; or by their rows.
    pub(super) early: usize,
    /// They were started after callers were told that they are cancelled. What was started before that may have been, where
    /// its lease had ended.
    pub(super) cancelled: usize,
    /// They were started again by the same claim, so not because a lease had ended.
    pub(super) twice: usize,
    /// They were started again because a lease had ended.
    pub(super) taken_over: usize,
}

impl Losses {
    pub(super) const NONE: Self = Self {
        lost: 0,
        early: 0,
        cancelled: 0,
        twice: 0,
        taken_over: 0,
    };

    /// Leaves out tasks that were started again because a lease had ended.
    pub(super) fn but_taken_over(self) -> Self {
        Self {
            taken_over: 0,
            ..self
        }
    }

    /// The loss of a promoted replica is bounded only by the last moments.
    pub(super) fn assert_only_the_last_moments(&self) {
        let all = self.lost + self.cancelled + self.twice + self.early;
        assert!(all < rate().max(2_000), "{self:?}");
    }
}

impl Shop {
    pub(super) fn open(store: RedisStore) -> Self {
        let scheduler = Scheduler::new(store);
        let runs = Arc::<Mutex<Vec<Run>>>::default();
        let noted = runs.clone();
        let policy = Policy::new().concurrency(256);
        let worker = Worker::new(&scheduler).lease(LEASE);
        let worker = worker.handle_with(KIND, policy, move |(), context| {
            let run = Run {
                id: context.id(),
                version: context.task().version,
                at: now(),
                due_at: context.due_at(),
                late: context.lateness(),
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
            told: Mutex::default(),
            runs,
            failed: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            stop,
            working,
        }
    }

    /// How many handlers were started.
    pub(super) fn started(&self) -> usize {
        self.runs.lock().unwrap().len()
    }

    /// Says whether this machine is too slow for the load.
    pub(super) fn is_behind(&self) -> bool {
        let runs = self.runs.lock().unwrap();
        runs.last().is_some_and(|run| is_behind(run.late, run.at))
    }

    /// Records the answer to a caller.
    pub(super) fn tell(&self, tasks: impl IntoIterator<Item = (TaskId, Told)>) {
        self.told.lock().unwrap().extend(tasks);
    }

    /// Repeats a verb while it fails with a transient error, and returns its answer.
    pub(super) async fn repeat<T, F>(&self, verb: impl Fn() -> F) -> Result<T, Error>
    where
        F: Future<Output = Result<T, Error>>,
    {
        let began = Instant::now();
        loop {
            match verb().await {
                Err(error) if error.is_transient() => {
                    self.failed.fetch_add(1, Ordering::Relaxed);
                    sleep(Duration::from_millis(50)).await;
                }
                answer => {
                    let millis = u64::try_from(began.elapsed().as_millis()).unwrap();
                    self.longest.fetch_max(millis, Ordering::Relaxed);
                    return answer;
                }
            }
        }
    }

    /// Waits until the tasks that callers were told of since then have run, then ends; returns the differences.
    pub(super) async fn end(self, since: Option<Instant>) -> Losses {
        let told = self.told.lock().unwrap().clone();
        let is_meant = |told: &Told| since.is_none_or(|since| told.asked > since);
        let scheduled: BTreeSet<_> = told
            .iter()
            .filter(|(_, told)| is_meant(told) && told.cancelled_at.is_none())
            .map(|(id, _)| *id)
            .collect();
        self.stop.send(()).unwrap();
        until("the worker stops", || self.working.is_finished()).await;
        self.working.await.unwrap().unwrap();
        let stats = self.scheduler.stats();
        self.scheduler.close().await.unwrap();

        let runs = self.runs.lock().unwrap();
        let mut late: Vec<_> = runs.iter().map(|run| run.late).collect();
        late.sort_unstable();
        let [p50, p99, max] = [50, 99, 100].map(|percent| late[(late.len() * percent).div_ceil(100) - 1]);
        println!(
            "{} starts, late p50 {p50:.0?}, p99 {p99:.0?}, max {max:.0?}; p99 of each shard {:.0?}; {} claims lost, {} expired; verbs failed {} times, \
             the longest was answered after {} ms; nothing was started for {} ms at the longest",
            runs.len(),
            late_by_shard(&runs),
            stats.lost_claims,
            stats.expired,
            self.failed.into_inner(),
            self.longest.into_inner(),
            longest_pause(&runs),
        );
        let mut started = BTreeSet::new();
        let mut claims = BTreeSet::new();
        let (mut early, mut twice, mut taken_over, mut cancelled) = (0, 0, 0, BTreeSet::new());
        for run in runs.iter() {
            let told = told.get(&run.id).filter(|told| is_meant(told));
            // For earlier requests, servers that forget everything forget the versions too: a caller that repeats an
            // unanswered request gets the same task again, with the same versions.
            let counts = usize::from(told.is_some() || since.is_none());
            if !claims.insert((run.id, run.version)) {
                twice += counts;
            } else if !started.insert(run.id) {
                taken_over += counts;
            }
            let is_early = told.is_some_and(|told| told.cancelled_at.is_none() && run.at < told.due_at);
            early += usize::from(run.at < run.due_at || is_early);
            if told.is_some_and(|told| {
                told.cancelled_at
                    .is_some_and(|cancelled_at| run.at > cancelled_at)
            }) {
                cancelled.insert(run.id);
            }
        }
        Losses {
            lost: scheduled.difference(&started).count(),
            early,
            cancelled: cancelled.len(),
            twice,
            taken_over,
        }
    }
}

/// How late tasks of each shard were of which any ran, at the 99th percentile; the least late shard first.
fn late_by_shard(runs: &[Run]) -> Vec<Duration> {
    let mut shards = vec![Vec::new(); usize::from(SHARDS)];
    for run in runs {
        shards[usize::from(shard_of(run.id))].push(run.late);
    }
    let p99 = |late: &mut Vec<Duration>| {
        late.sort_unstable();
        late[(late.len() * 99).div_ceil(100) - 1]
    };
    let have_run = shards.iter_mut().filter(|late| !late.is_empty());
    let mut shards: Vec<_> = have_run.map(p99).collect();
    shards.sort_unstable();
    shards
}

/// The longest time in ms in which no handler was started.
fn longest_pause(runs: &[Run]) -> i64 {
    let pauses = runs
        .windows(2)
        .map(|runs| runs[1].at.as_millis() - runs[0].at.as_millis());
    pauses.max().unwrap_or(0)
}
