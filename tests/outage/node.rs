//! A service, and the processes that it runs in.
#![allow(dead_code)] // A test and a program that measures share it, and each uses its own part of it.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use delayline::backend::{RedisBackend, RocketMqBackend, WokenBy};
use delayline::rocketmq::RocketMqOptions;
use delayline::store::Page;
use delayline::{NewTask, Outcome, Policy, Scheduler, State, Task, TaskId, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::service::{OnSqlite, Service};

pub(crate) const KIND: &str = "order.cancel";
/// Makes a test fail that would hang.
pub(crate) const SAFETY: Duration = Duration::from_secs(300);

/// Where the wake-ups of one service travel.
#[derive(Clone)]
pub(crate) struct Place {
    nameserver: String,
    topic: String,
    group: String,
    redis: String,
}

impl Place {
    /// A topic and a group of its own. With a Redis, as the table would find due tasks before their level brings them.
    pub(crate) fn new(nameserver: &str, redis: String) -> Self {
        let unique = format!("{:016x}", fastrand::u64(..));
        Self {
            nameserver: nameserver.to_owned(),
            topic: format!("wakes-{unique}"),
            group: format!("workers-{unique}"),
            redis,
        }
    }
}

/// A start of a handler.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: TaskId,
    pub(crate) node: String,
    pub(crate) woken_by: WokenBy,
    pub(crate) late: Duration,
}

/// A service with a database in a file, on one place.
#[derive(Clone)]
pub(crate) struct Shop {
    service: OnSqlite,
    place: Place,
    has_effects: bool,
    /// The tasks that must run, or have run.
    scheduled: Arc<Mutex<BTreeSet<TaskId>>>,
    runs: Arc<Mutex<Vec<Run>>>,
}

impl Shop {
    pub(crate) async fn open(place: Place) -> Self {
        Self {
            service: OnSqlite::new().await,
            place,
            has_effects: true,
            scheduled: Arc::default(),
            runs: Arc::default(),
        }
    }

    /// Makes its handlers do nothing: for more tasks than a file can have effects of, a transaction each.
    pub(crate) fn without_effects(mut self) -> Self {
        self.has_effects = false;
        self
    }

    /// A process that schedules and runs tasks.
    pub(crate) async fn worker(&self, name: &str) -> Node {
        let mut node = self.sender().await;
        let (service, runs, name) = (self.service.clone(), self.runs.clone(), name.to_owned());
        let (policy, has_effects) = (Policy::new().concurrency(8), self.has_effects);
        let worker =
            Worker::new(&node.scheduler)
                .name(&name)
                .handle_with(KIND, policy, move |(), context| {
                    runs.lock().unwrap().push(Run {
                        id: context.id(),
                        node: name.clone(),
                        woken_by: context.woken_by(),
                        late: context.lateness(),
                    });
                    let service = service.clone();
                    async move {
                        if !has_effects {
                            return Ok(Outcome::Done);
                        }
                        let mut tx = service.begin().await?;
                        service.effect(&mut tx, &context.id().to_string()).await?;
                        context.finish_in(service.join(&mut tx)).await?;
                        service.commit(tx).await?;
                        Ok(Outcome::Done)
                    }
                });
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(worker.run_until(async move {
            let _ = stopped.await;
        }));
        node.worker = Some((stop, running));
        node
    }

    /// A process that only schedules.
    pub(crate) async fn sender(&self) -> Node {
        let options = RocketMqOptions::new(&self.place.nameserver)
            .topic(&self.place.topic)
            .group(&self.place.group)
            .lazy();
        let levels = RocketMqBackend::connect(options).await.unwrap();
        let precise = RedisBackend::new(&self.place.redis).unwrap();
        let scheduler = Scheduler::builder(self.service.store())
            .carrier(Arc::new(levels))
            .precise(Arc::new(precise))
            .build()
            .unwrap();
        Node {
            scheduler,
            worker: None,
        }
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.runs.lock().unwrap().clone()
    }

    /// Counts the tasks that a wake-up through a level has started.
    pub(crate) fn woken_by_levels(&self) -> usize {
        let runs = self.runs.lock().unwrap();
        runs.iter().filter(|run| run.woken_by == WokenBy::Carrier).count()
    }

    /// Records that a task must run.
    pub(crate) fn expect(&self, id: TaskId) {
        self.scheduled.lock().unwrap().insert(id);
    }

    /// Waits until everything that must run has run.
    pub(crate) async fn until_all_ran(&self) {
        let count = self.scheduled.lock().unwrap().len();
        let again = || tokio::time::sleep(Duration::from_millis(50));
        let running = async {
            while self.lost() > 0 {
                again().await;
            }
            while self.has_effects && self.service.effects().await.len() < count {
                again().await;
            }
        };
        if tokio::time::timeout(SAFETY, running).await.is_err() {
            panic!("of {count} tasks, {} have not run", self.lost());
        }
    }

    /// Asserts that each expected task has had its effect once, no other task has had one, and none was started twice.
    pub(crate) async fn assert_each_ran_once(&self) {
        let scheduled = self.scheduled.lock().unwrap().clone();
        let ids: Vec<_> = scheduled.iter().map(TaskId::to_string).collect();
        assert_eq!(self.service.effects().await, ids);
        let mut started: Vec<_> = self.runs().into_iter().map(|run| run.id).collect();
        started.sort_unstable();
        assert_eq!(started, Vec::from_iter(scheduled));
    }

    /// Counts expected tasks that have not been started.
    pub(crate) fn lost(&self) -> usize {
        let started: BTreeSet<_> = self.runs().into_iter().map(|run| run.id).collect();
        self.scheduled.lock().unwrap().difference(&started).count()
    }

    /// Counts starts of tasks that had been started before.
    pub(crate) fn repeated(&self) -> usize {
        let runs = self.runs();
        let started: BTreeSet<_> = runs.iter().map(|run| run.id).collect();
        runs.len() - started.len()
    }

    /// Prints how late handlers were started.
    pub(crate) fn lateness(&self) -> String {
        let mut late: Vec<_> = self.runs().into_iter().map(|run| run.late).collect();
        late.sort_unstable();
        let of = |percent: usize| late[(late.len() * percent).div_ceil(100).saturating_sub(1)].as_millis();
        if late.is_empty() {
            return "nothing ran".to_owned();
        }
        let [p50, p99, max] = [50, 99, 100].map(of);
        format!(
            "{} tasks, late p50 {p50} ms, p99 {p99} ms, max {max} ms",
            late.len()
        )
    }
}

/// The signal that ends a worker, and the worker's result.
type Running = (oneshot::Sender<()>, JoinHandle<Result<(), delayline::Error>>);

/// One process of a service, as far as servers can see it.
pub(crate) struct Node {
    pub(crate) scheduler: Scheduler,
    worker: Option<Running>,
}

impl Node {
    /// Schedules `count` tasks, each after some milliseconds.
    pub(crate) async fn schedule(&self, shop: &Shop, count: usize, delays: Range<u64>) {
        let tasks = (0..count).map(|_| {
            let delay = Duration::from_millis(fastrand::u64(delays.clone()));
            NewTask::new(KIND, &()).after(delay)
        });
        for answer in self.scheduler.schedule_all(tasks).await.unwrap() {
            shop.expect(answer.task().id);
        }
    }

    /// The tasks that some worker has claimed.
    pub(crate) async fn claimed(&self) -> Vec<Task> {
        let page = Page::new(KIND, State::Running).limit(1_000);
        self.scheduler.list(&page).await.unwrap()
    }

    /// Stops gracefully.
    pub(crate) async fn stop(self) {
        if let Some((stop, running)) = self.worker {
            let _ = stop.send(());
            running.await.unwrap().unwrap();
        }
        self.scheduler.close().await.unwrap();
    }
}
