//! The library, as a service uses it: a scheduler and a worker with their default settings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline::store::{Action, Expect, History, Store, Target, When};
use delayline::{Answer, Context, Kind, NewTask, Outcome, Policy, Scheduled, Scheduler, Timestamp, Worker};
use tokio::sync::mpsc::UnboundedSender;

use super::Error;
use super::idle::Working;
use super::ledger::{Ledger, ServerClock};
use super::side::{Item, KIND, PATIENCE, PAYLOAD, Pending, SOON, Side, Verb, number};

/// Longer than any task waits.
const EVER: Duration = Duration::from_secs(86_400);

/// A store of the library's, and a scheduler over it.
#[derive(Clone)]
pub(crate) struct Ours {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) scheduler: Scheduler,
    /// Of all tasks.
    pub(crate) kind: Kind,
}

impl Ours {
    pub(crate) fn over(store: Arc<dyn Store>) -> Result<Self, Error> {
        Self::noting(store, History::Off)
    }

    /// The same where it is noted what happens to tasks.
    pub(crate) fn noting(store: Arc<dyn Store>, history: History) -> Result<Self, Error> {
        let scheduler = Scheduler::builder(Arc::clone(&store)).history(history).build()?;
        let kind = KIND.into();
        Ok(Self {
            store,
            scheduler,
            kind,
        })
    }

    /// The same with tasks of another kind.
    pub(crate) fn of_kind(self, kind: Kind) -> Self {
        Self { kind, ..self }
    }

    /// A worker that says of each task that it has started, and has nothing to do.
    fn worker(&self, started: impl Fn(usize) + Send + Sync + 'static) -> Worker {
        let handler = move |context: Context| {
            if let Some(number) = context.key().and_then(number) {
                started(number);
            }
            async { Ok(Outcome::Done) }
        };
        Worker::new(&self.scheduler).handle_bytes(self.kind.clone(), Policy::new(), handler)
    }

    async fn add(&self, items: &[Item]) -> Result<usize, Error> {
        let task = |item: &Item| self.task(*item);
        let answers = match items {
            [item] => vec![self.scheduler.schedule(task(item)).await?],
            items => self.scheduler.schedule_all(items.iter().map(task)).await?,
        };
        let is_new = |answer: &&Scheduled| matches!(answer, Scheduled::New(_));
        Ok(answers.iter().filter(is_new).count())
    }

    async fn change(&self, items: &[Item], action: impl Fn(Item) -> Action) -> Result<usize, Error> {
        let changes = items
            .iter()
            .map(|item| (self.target(*item), Expect::Anything, action(*item)));
        let mut done = 0;
        for answer in self.scheduler.change_each(changes).await {
            done += usize::from(answer?.is_done());
        }
        Ok(done)
    }

    fn task(&self, item: Item) -> NewTask {
        NewTask::from_bytes(self.kind.clone(), PAYLOAD)
            .key(item.key())
            .at(Timestamp::from_millis(item.due))
    }

    fn target(&self, item: Item) -> Target {
        (self.kind.clone(), item.key()).into()
    }
}

fn one(answer: Answer) -> usize {
    usize::from(answer.is_done())
}

impl Working for Ours {
    async fn work(self, started: UnboundedSender<usize>) -> Result<(), Error> {
        let worker = self.worker(move |number| {
            // Nobody hears of the last ones.
            let _ = started.send(number);
        });
        Ok(worker.run_until(std::future::pending::<()>()).await?)
    }
}

impl Side for Ours {
    async fn apply(&self, verb: Verb, items: &[Item]) -> Result<usize, Error> {
        let to = |item: Item| When::At(Timestamp::from_millis(item.due));
        match (verb, items) {
            (Verb::Add, items) => self.add(items).await,
            (Verb::Cancel, [item]) => Ok(one(self.scheduler.cancel(self.target(*item)).await?)),
            (Verb::Cancel, items) => self.change(items, |_| Action::Cancel).await,
            (Verb::Move, [item]) => Ok(one(self
                .scheduler
                .reschedule(self.target(*item), to(*item))
                .await?)),
            (Verb::Move, items) => self.change(items, |item| Action::Reschedule(to(item))).await,
        }
    }

    async fn drain(&self, ledger: &Arc<Ledger>) -> Result<usize, Error> {
        let all = ledger.len() as u64;
        let last = ledger.len().checked_sub(1).map_or(0, |last| ledger.due(last));
        let left = u64::try_from(last * 1_000 - ledger.now()).unwrap_or(0);
        let end = Instant::now() + Duration::from_micros(left) + PATIENCE;
        let done = async {
            while self.scheduler.stats().done < all && Instant::now() < end {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            ledger.end();
        };
        let seen = Arc::clone(ledger);
        let worker = self.worker(move |number| seen.start(number));
        worker.run_until(done).await?;
        Ok(self.scheduler.stats().done as usize)
    }

    async fn pending(&self) -> Result<Pending, Error> {
        let soon = Duration::from_millis(SOON.unsigned_abs());
        match *self.scheduler.forecast(self.kind.clone(), &[soon, EVER]).await? {
            [soon, all] => Ok(Pending { soon, all }),
            _ => Err("a forecast has a count for each span".into()),
        }
    }

    async fn clock(&self) -> Result<ServerClock, Error> {
        ServerClock::asked(|| async { Ok(self.store.now().await?.as_millis() * 1_000) }).await
    }

    async fn close(self) -> Result<(), Error> {
        Ok(self.scheduler.close().await?)
    }
}
