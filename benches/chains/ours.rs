//! The same through the library.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use delayline::backend::{RedisBackend, RocketMqBackend};
use delayline::delay::Routing;
use delayline::rocketmq::RocketMqOptions;
use delayline::stats::Stats;
use delayline::store::SqliteStore;
use delayline::{Context, NewTask, Outcome, Scheduler, Worker};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

use crate::{CALLERS, EVERY, Error, STEADY};

const KIND: &str = "bench";
const BATCH: usize = 500;
const HOUR: Duration = Duration::from_secs(3_600);

/// A scheduler and a worker on a topic, a prefix and a file of their own.
pub(crate) struct Side {
    scheduler: Scheduler,
    late: Arc<Mutex<Vec<i64>>>,
    stop: oneshot::Sender<()>,
    running: JoinHandle<Result<(), delayline::Error>>,
    _file: tempfile::TempDir,
}

impl Side {
    /// With the default routing: chains end on a level.
    pub(crate) async fn on_levels(rocketmq: &str, redis: &str) -> Result<Self, Error> {
        Self::start(rocketmq, redis, Routing::default()).await
    }

    /// Chains end in Redis.
    pub(crate) async fn on_handoff(rocketmq: &str, redis: &str) -> Result<Self, Error> {
        let routing = Routing::default()
            .handoff(Duration::from_secs(5))
            .tolerance(Duration::ZERO);
        Self::start(rocketmq, redis, routing).await
    }

    async fn start(rocketmq: &str, redis: &str, routing: Routing) -> Result<Self, Error> {
        let file = tempfile::tempdir()?;
        let name = format!("bench_{:016x}", fastrand::u64(..));
        let store = SqliteStore::open(file.path().join("tasks.db")).await?;
        let options = RocketMqOptions::new(rocketmq).topic(&name).group(&name);
        let scheduler = Scheduler::builder(Arc::new(store))
            .carrier(Arc::new(RocketMqBackend::connect(options).await?))
            .precise(Arc::new(RedisBackend::builder(redis).prefix(&name).build()?))
            .routing(routing)
            .build()?;
        let late = Arc::new(Mutex::new(Vec::with_capacity(STEADY)));
        let (stop, stopped) = oneshot::channel();
        let seen = Arc::clone(&late);
        let worker = Worker::new(&scheduler).handle(KIND, move |(): (), context: Context| {
            let late = i64::try_from(context.lateness().as_millis()).unwrap_or(i64::MAX);
            seen.lock().unwrap_or_else(PoisonError::into_inner).push(late);
            async { Ok(Outcome::Done) }
        });
        let running = tokio::spawn(worker.run_until(async {
            let _ = stopped.await;
        }));
        Ok(Self {
            scheduler,
            late,
            stop,
            running,
            _file: file,
        })
    }

    /// How late the tasks of a steady load start, each after a chain of `hops`, in ms.
    pub(crate) async fn late(&self, delay: Duration, hops: u32) -> Result<Vec<i64>, Error> {
        let mut tick = tokio::time::interval(EVERY);
        let mut callers = JoinSet::new();
        for _ in 0..STEADY {
            tick.tick().await;
            let scheduler = self.scheduler.clone();
            callers.spawn(async move {
                scheduler
                    .schedule(NewTask::new(KIND, &()).after(delay))
                    .await
                    .map(drop)
            });
        }
        while let Some(scheduled) = callers.join_next().await {
            scheduled??;
        }
        let stats = self.until(|stats| stats.done >= STEADY as u64).await?;
        let each = stats.sent_by_carrier as f64 / STEADY as f64;
        if each + 0.05 < f64::from(hops) {
            return Err(format!("each task took {each:.2} levels, and not {hops}").into());
        }
        Ok(std::mem::take(
            &mut *self.late.lock().unwrap_or_else(PoisonError::into_inner),
        ))
    }

    /// How many tasks a second have their row and their wake-up on the broker.
    pub(crate) async fn scheduled(&self, time: Duration) -> Result<f64, Error> {
        let start = Instant::now();
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let scheduler = self.scheduler.clone();
            callers.spawn(async move {
                let payload = "x".repeat(100);
                let mut count = 0_u64;
                while start.elapsed() < time {
                    scheduler
                        .schedule(NewTask::new(KIND, &payload).after(HOUR))
                        .await?;
                    count += 1;
                }
                Ok::<_, delayline::Error>(count)
            });
        }
        let mut count = 0;
        while let Some(caller) = callers.join_next().await {
            count += caller??;
        }
        self.until(|stats| stats.sent_by_carrier + stats.sent_precise + stats.left_to_sweep >= count)
            .await?;
        let seconds = start.elapsed().as_secs_f64();
        let stats = self.scheduler.stats();
        if stats.sent_by_carrier < count {
            println!(
                "{} of {count} wake-ups were sent to the broker",
                stats.sent_by_carrier
            );
        }
        Ok(stats.sent_by_carrier as f64 / seconds)
    }

    /// How many ms it takes until tasks that come out of one level at once have all run, or have all taken their
    /// next hop: from the first arrival on.
    pub(crate) async fn burst(&self, count: usize, delay: Duration) -> Result<f64, Error> {
        let tasks = |_| NewTask::new(KIND, &()).after(delay);
        for batch in Vec::from_iter(0..count).chunks(BATCH) {
            self.scheduler
                .schedule_all(batch.iter().map(tasks).collect::<Vec<_>>())
                .await?;
        }
        self.until(|stats| stats.received > 0).await?;
        let start = Instant::now();
        let all = count as u64;
        self.until(|stats| stats.done + stats.hops >= all).await?;
        Ok(start.elapsed().as_secs_f64() * 1_000.0)
    }

    async fn until(&self, reached: impl Fn(&Stats) -> bool) -> Result<Stats, Error> {
        let waiting = async {
            loop {
                let stats = self.scheduler.stats();
                if reached(&stats) {
                    return stats;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        Ok(tokio::time::timeout(Duration::from_secs(90), waiting).await?)
    }

    pub(crate) async fn close(self) -> Result<(), Error> {
        let _ = self.stop.send(());
        self.running.await??;
        self.scheduler.close().await?;
        Ok(())
    }
}
