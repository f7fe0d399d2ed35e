//! Measures RocketMQ: chains of hops through the levels of brokers, beside one level alone.

use std::sync::Arc;
use std::time::Duration;

use delayline::backend::{Backend as _, Delays, Reach, RocketMqBackend, WheelBackend};
use delayline::delay::{Hop, Level, LevelTable, Routing, Spelled, plan};
use delayline::rocketmq::{RocketMqOptions, Scratch, Survey};
use delayline::store::Store;
use delayline::{NewTask, Scheduler, defaults};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};

use super::figure::{self, Line, Measured};
use super::ledger::Ledger;
use super::ours::Ours;
use super::side::{KIND, PAYLOAD, Place, Side as _};
use super::workload::Workload;
use super::{Error, Run};
use crate::Failure;
use crate::field::by_flag;
use crate::probe::{self, Order};

/// The beginning of the topic's and the group's names.
const NAME: &str = "delayline_bench";
/// The pace of tasks, which begins when the worker has had time to start. The probe sends as many a second.
const EVERY: Duration = Duration::from_millis(2);
const LEAD: Duration = Duration::from_secs(1);
/// How many messages go before the others, to know that they arrive.
const WARM_UP: usize = 100;
/// Brokers, with a topic and a group of the run's own.
pub(crate) struct Brokers {
    scratch: Scratch,
    levels: LevelTable,
}

impl Brokers {
    pub(crate) async fn make(nameservers: &str) -> Result<Self, Failure> {
        let options = RocketMqOptions::new(nameservers).topic(NAME).group(NAME);
        let survey = Survey::take(options.clone()).await;
        let levels = survey
            .map_err(|error| by_flag(error, &[("nameservers", "--nameserver")]))?
            .levels();
        let scratch = Scratch::make(options).await?;
        Ok(Self { scratch, levels })
    }

    pub(crate) async fn delete(self) -> Result<(), Error> {
        Ok(self.scratch.delete().await?)
    }

    /// Measures both sides in turns, with rows in a place.
    pub(crate) async fn measure(
        &self,
        after: Duration,
        rows: &dyn Place,
        run: &Run,
    ) -> Result<Vec<Line>, Error> {
        let delays = Delays {
            reach: Reach::Levels(self.levels.clone()),
            usual_lateness: defaults::LEVELS_LATENESS,
        };
        let Some(&Hop::Level(level)) = plan(after, &Routing::default(), Some(&delays)).hops.first() else {
            return Err(format!(
                "--after is {}, which no level of {} is as short as",
                Spelled(after),
                self.levels
            )
            .into());
        };
        let tasks = Workload::C1.tasks().min(run.tasks);
        let (mut limits, mut ours) = (Vec::new(), Vec::new());
        for number in 1..=run.runs {
            run.bar
                .set_message(format!("rocketmq C1: the limit, run {number}"));
            limits.push(vec![self.level(level, tasks).await?]);
            run.bar
                .set_message(format!("rocketmq C1: delayline, run {number}"));
            ours.push(vec![
                self.chain(after, tasks, rows.store(&run.name()).await?).await?,
            ]);
            rows.clean(&run.prefix).await?;
        }
        Ok(figure::lines(Workload::C1, "rocketmq", &limits, &ours))
    }

    async fn carrier(&self) -> Result<Arc<RocketMqBackend>, Error> {
        Ok(Arc::new(
            RocketMqBackend::connect(self.scratch.options().clone()).await?,
        ))
    }

    /// Measures how late wake-ups come out of one level, without rows.
    async fn level(&self, level: Level, tasks: usize) -> Result<Measured, Error> {
        let backend = self.carrier().await?;
        let order = Order {
            levels: &[level],
            count: tasks,
            warm_up: Some((level, WARM_UP)),
        };
        let probed = probe::probe(backend.clone(), &order, |_| {}).await?;
        backend.close().await?;
        let late: Vec<f64> = probed
            .iter()
            .flat_map(|level| &level.late)
            .map(|&late| late.max(0) as f64)
            .collect();
        // A probe is waited for no longer than ten seconds: on a busy machine the others say as much.
        if late.is_empty() {
            return Err(format!("no message came out of level {level}").into());
        }
        Ok(Measured {
            tasks: late.len(),
            late,
            ..Measured::default()
        })
    }

    /// Measures how late tasks start after a chain. It ends in a wheel, so that the lateness of a level shows: by
    /// default the last two seconds are read ahead from the rows.
    async fn chain(&self, after: Duration, tasks: usize, store: Arc<dyn Store>) -> Result<Measured, Error> {
        let scheduler = Scheduler::builder(Arc::clone(&store))
            .carrier(self.carrier().await?)
            .precise(Arc::new(WheelBackend::new()))
            .build()?;
        let ours = Arc::new(Ours { store, scheduler });
        let apart = EVERY.as_millis() as i64;
        let ledger = Arc::new(Ledger::new(&*ours, tasks, LEAD + after, apart).await?);
        let scheduling = async {
            let mut tick = interval_at(Instant::now() + LEAD, EVERY);
            let mut calls = JoinSet::new();
            for number in 0..tasks {
                tick.tick().await;
                let key = ledger.item(number).key();
                let task = NewTask::from_bytes(KIND, PAYLOAD).key(key).after(after);
                let scheduler = ours.scheduler.clone();
                calls.spawn(async move { scheduler.schedule(task).await });
            }
            while let Some(called) = calls.join_next().await {
                called??;
            }
            Ok(())
        };
        let draining = Arc::clone(&ours).drain(Arc::clone(&ledger));
        let ((), ended) = tokio::try_join!(scheduling, draining)?;
        let hops = ours.scheduler.stats().sent_by_carrier as f64 / tasks as f64;
        ours.close().await?;
        Ok(Measured {
            hops: Some(hops),
            ..ledger.measured(ended)
        })
    }
}
