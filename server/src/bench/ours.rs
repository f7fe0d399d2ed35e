//! Measures the library as a service uses it: a scheduler and a worker with their default settings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use delayline::store::{Store, Target, When};
use delayline::{Context, Kind, NewTask, Outcome, Policy, Scheduled, Scheduler, Timestamp, Worker};

use super::Error;
use super::ledger::Ledger;
use super::side::{Item, KIND, PAYLOAD, Side, Verb};

/// How long to wait for tasks after the last one is due.
const DEADLINE: Duration = Duration::from_secs(120);

/// A store of the library's, and a scheduler over it.
pub(crate) struct Ours {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) scheduler: Scheduler,
}

impl Ours {
    /// With the scheduler's default settings.
    pub(crate) fn over(store: Arc<dyn Store>) -> Result<Arc<Self>, Error> {
        let scheduler = Scheduler::builder(Arc::clone(&store)).build()?;
        Ok(Arc::new(Self { store, scheduler }))
    }
}

#[async_trait]
impl Side for Ours {
    async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error> {
        let target = |item: &Item| Target::from((Kind::from(KIND), item.key()));
        let at = |item: &Item| Timestamp::from_millis(item.due);
        let answers = match verb {
            Verb::Add => {
                let new = |item: &Item| NewTask::from_bytes(KIND, PAYLOAD).key(item.key()).at(at(item));
                let answers = self.scheduler.schedule_all(items.iter().map(new)).await?;
                let new = answers
                    .iter()
                    .filter(|answer| matches!(answer, Scheduled::New(_)));
                return Ok(new.count());
            }
            Verb::Cancel => self.scheduler.cancel_all(items.iter().map(target)).await?,
            Verb::Move => {
                let moves = items.iter().map(|item| (target(item), When::At(at(item))));
                self.scheduler.reschedule_all(moves.collect::<Vec<_>>()).await?
            }
            Verb::Claim | Verb::Finish => return Err("a worker does that".into()),
        };
        Ok(answers.iter().filter(|answer| answer.is_done()).count())
    }

    async fn now(&self) -> Result<i64, Error> {
        Ok(self.store.now().await?.as_millis())
    }

    /// Uses a worker, with a handler that has nothing to do.
    async fn drain(self: Arc<Self>, ledger: Arc<Ledger>) -> Result<usize, Error> {
        let all = ledger.len() as u64;
        let left = ledger.item(ledger.len()).due * 1_000 - ledger.now();
        let end = Instant::now() + Duration::from_micros(u64::try_from(left).unwrap_or(0)) + DEADLINE;
        let done = async {
            while self.scheduler.stats().done < all && Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            ledger.end();
        };
        let seen = Arc::clone(&ledger);
        let handler = move |context: Context| {
            if let Some(number) = context.key().and_then(|key| key.parse().ok()) {
                seen.start(number, context.due_at().as_millis());
            }
            async { Ok(Outcome::Done) }
        };
        let worker = Worker::new(&self.scheduler).handle_bytes(KIND, Policy::new(), handler);
        worker.run_until(done).await?;
        Ok(self.scheduler.stats().done as usize)
    }

    async fn close(&self) -> Result<(), Error> {
        Ok(self.scheduler.close().await?)
    }
}
