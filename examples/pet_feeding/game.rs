//! The game: its verbs, and what happens when a pet is hungry.

use std::sync::Arc;
use std::time::Duration;

use delayline::store::{Expect, Store};
use delayline::{Answer, Context, Failure, NewTask, Outcome, Scheduled, Scheduler, Shift, Task, Worker};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::info;

use crate::Error;
use crate::ledger::Ledger;

/// Binds a task to its handler. It is stored with each task, so it must stay the same from release to release.
const HUNGRY: &str = "pet.hungry";

/// A player and the name of a pet: together the key of its task.
pub(crate) type Pet<'a> = (&'a str, &'a str);

fn key((player, name): Pet<'_>) -> String {
    format!("{player}/{name}")
}

pub(crate) struct Game {
    store: Arc<dyn Store>,
    scheduler: Scheduler,
    hour: Duration,
    ledger: Arc<Ledger>,
}

impl Game {
    pub(crate) async fn open(store: Arc<dyn Store>, hour: Duration) -> Result<Self, Error> {
        store.check().await?;
        let scheduler = Scheduler::builder(Arc::clone(&store)).build()?;
        Ok(Self {
            store,
            scheduler,
            hour,
            ledger: Arc::default(),
        })
    }

    pub(crate) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Gives a pet its food: it is hungry in 4 hours from now, whatever was planned before. If it is getting hungry at this
    /// moment, it eats right after.
    pub(crate) async fn feed(&self, pet: Pet<'_>) -> Result<(), Error> {
        loop {
            let in_four_hours = NewTask::new(HUNGRY, &pet).key(key(pet)).after(4 * self.hour);
            match self.scheduler.schedule(in_four_hours.replace()).await? {
                Scheduled::New(task) | Scheduled::Existing(task) | Scheduled::Replaced(task) => {
                    self.ledger.fed(&task);
                    return Ok(());
                }
                Scheduled::Running(_) => tokio::time::sleep(self.hour / 20).await,
            }
        }
    }

    /// Throws a card: the pet is hungry 2 hours sooner. If it is hungry already, the card comes back.
    pub(crate) async fn throw_card(&self, pet: Pet<'_>) -> Result<(), Error> {
        let sooner = Shift::Earlier(2 * self.hour);
        let answer = self.scheduler.shift((HUNGRY, key(pet).as_str()), sooner).await?;
        self.count(pet, &answer);
        Ok(())
    }

    /// Throws a card whose message arrives twice: it counts once, as each message names the time that the player saw.
    pub(crate) async fn throw_card_twice(&self, pet: Pet<'_>) -> Result<(), Error> {
        let target = (HUNGRY, &*key(pet));
        let seen = self
            .scheduler
            .find(target)
            .await?
            .ok_or("that pet was not fed yet")?;
        let seen = Expect::Due(seen.due_at);
        let sooner = Shift::Earlier(2 * self.hour);
        let (first, second) = tokio::join!(
            self.scheduler.shift_if(target, seen, sooner),
            self.scheduler.shift_if(target, seen, sooner)
        );
        let counted = match (first?, second?) {
            twice @ (Answer::Done(_), Answer::Done(_)) => {
                return Err(format!("one of two was to count: {twice:?}").into());
            }
            // The other one found another time, or the pet already hungry.
            (done @ Answer::Done(_), _) | (_, done @ Answer::Done(_)) => done,
            (neither, _) => neither,
        };
        self.count(pet, &counted);
        Ok(())
    }

    fn count(&self, pet: Pet<'_>, answer: &Answer) {
        match answer {
            Answer::Done(task) => self.ledger.card_counted(task),
            // Hungry already, or becoming so at this moment.
            Answer::TooLate(_) | Answer::Finished(_) => {
                info!(player = pet.0, pet = pet.1, "too late, the card comes back");
                self.ledger.card_back();
            }
            Answer::Conflict(_) | Answer::NotFound => self.ledger.failed(format!("{pet:?}: {answer:?}")),
        }
    }

    /// Shows a player when the pets will be hungry, by the clock that decides it.
    pub(crate) async fn show(&self, player: &str, names: &[&str]) -> Result<(), Error> {
        let now = self.store.now().await?;
        for &name in names {
            let task = self.task((player, name)).await?;
            let hours = task.due_at.millis_since(now) as f64 / self.hour.as_millis() as f64;
            info!(player, pet = name, state = ?task.state, hungry_in_hours = format!("{hours:.1}"));
        }
        Ok(())
    }

    async fn task(&self, pet: Pet<'_>) -> Result<Task, Error> {
        let found = self.scheduler.find((HUNGRY, key(pet).as_str())).await?;
        found.ok_or_else(|| format!("{pet:?} has no task").into())
    }

    /// Waits until a pet gets hungry, to a few ms before or after.
    pub(crate) async fn about_when_hungry(&self, pet: Pet<'_>) -> Result<(), Error> {
        let (due, now) = (self.task(pet).await?.due_at, self.store.now().await?);
        let left = due.millis_since(now) + fastrand::i64(-5..=5);
        tokio::time::sleep(Duration::from_millis(u64::try_from(left).unwrap_or(0))).await;
        Ok(())
    }

    /// Waits until a pet has become hungry.
    pub(crate) async fn until_hungry(&self, pet: Pet<'_>) -> Result<(), Error> {
        while self.task(pet).await?.state.is_live() {
            tokio::time::sleep(self.hour / 20).await;
        }
        Ok(())
    }

    /// Waits until every pet that was fed is hungry.
    pub(crate) async fn all_hungry(&self) -> Result<(), Error> {
        while !self.ledger.is_complete() {
            tokio::time::sleep(self.hour / 20).await;
        }
        Ok(())
    }

    /// Runs the worker that makes pets hungry, until it is stopped.
    pub(crate) fn work(&self) -> Working {
        let ledger = Arc::clone(&self.ledger);
        let hungry = move |(player, pet): (String, String), context: Context| {
            let ledger = Arc::clone(&ledger);
            async move {
                info!(player, pet, "hungry");
                ledger.hungry(context.task());
                Ok::<_, Failure>(Outcome::Done)
            }
        };
        let worker = Worker::new(&self.scheduler).handle(HUNGRY, hungry);
        let (stop, stopped) = oneshot::channel();
        let worker = tokio::spawn(worker.run_until(async { drop(stopped.await) }));
        Working { stop, worker }
    }
}

/// A worker in the background.
pub(crate) struct Working {
    stop: oneshot::Sender<()>,
    worker: JoinHandle<Result<(), delayline::Error>>,
}

impl Working {
    pub(crate) async fn stop(self) -> Result<(), Error> {
        let _ = self.stop.send(());
        Ok(self.worker.await??)
    }
}
