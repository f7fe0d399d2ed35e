//! A service that has nothing but Redis.

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

/// What a caller was told of a task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Told {
    /// When it is due.
    pub(super) due_at: Timestamp,
    /// When it was cancelled, as far as a caller knows: at the answer.
    pub(super) cancelled_at: Option<Timestamp>,
    /// When the caller first asked for it.
    pub(super) asked: Instant,
}

/// A scheduler and a worker in this process, with rows and wake-ups in nothing but Redis.
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

/// What has become of all tasks, as far as that is not as callers were told.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Losses {
    /// They never ran.
    pub(super) lost: usize,
    /// They ran before they were due, as callers were told; or as their rows said.
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

    /// Without what was started again because a lease had ended.
    pub(super) fn but_taken_over(self) -> Self {
        Self {
            taken_over: 0,
            ..self
        }
    }

    /// How much a promoted replica had not is not ours; but no more than what went on in the last moments.
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

    /// Whether this machine is too slow for what callers ask for.
    pub(super) fn is_behind(&self) -> bool {
        let runs = self.runs.lock().unwrap();
        runs.last().is_some_and(|run| is_behind(run.late, run.at))
    }

    /// Says what a caller was told.
    pub(super) fn tell(&self, tasks: impl IntoIterator<Item = (TaskId, Told)>) {
        self.told.lock().unwrap().extend(tasks);
    }

    /// What a verb answers, which is repeated while it fails for a reason that may pass.
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

    /// Waits until those have run that callers were told of since then, then ends; says what was not as they were told.
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
            // Of what was asked for before, servers that forget everything forget the versions too: who asks once more for
            // want of an answer has the same task anew, with the same versions.
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

/// How late tasks of each shard were of which any ran, of a hundred the last but one; the least late shard first.
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

/// For how many ms no handler was started.
fn longest_pause(runs: &[Run]) -> i64 {
    let pauses = runs
        .windows(2)
        .map(|runs| runs[1].at.as_millis() - runs[0].at.as_millis());
    pauses.max().unwrap_or(0)
}
