//! The caller's verbs.

pub(crate) mod actor;
mod batches;
mod builder;
mod changing;
mod closing;
pub(crate) mod due_signals;
mod editing;
pub mod expected;
mod explain;
pub(crate) mod follow;
mod forecast;
mod keeping;
pub(crate) mod kernel;
pub(crate) mod notes;
pub(crate) mod pauses;
mod pausing;
mod revising;
mod sampling;
mod scheduling;
mod transaction;

use std::sync::Arc;

use self::batches::batches;
pub use self::builder::SchedulerBuilder;
use self::revising::Revision;
use crate::observe::metrics;
use crate::schedule::actor::Actor;
use crate::schedule::kernel::Kernel;
use crate::schedule::notes::Way;
use crate::stats::Stats;
use crate::store::only;
use crate::store::receipt::Follow;
use crate::store::{Action, Change, Expect, History, Note, Page, Store, Target, Verb, When};
use crate::{Answer, Error, Events, Kind, Shift, Task, TaskId};

/// Schedules tasks, and moves, cancels, runs and finds them, each with a definite answer.
///
/// A cheap handle: clone it. Every verb answers when the row is durable in the store; wake-ups follow behind.
/// Every verb can be repeated after an error: see [`NewTask::id`](crate::NewTask::id) and [`Scheduler::shift_if`] for
/// the two whose effect could otherwise be had twice.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::store::MemoryStore;
/// use delayline::{NewTask, Scheduler, Shift};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// let unpaid = NewTask::new("order.cancel", &42).key("42").after(Duration::from_secs(900));
/// let due = scheduler.schedule(unpaid).await?.task().due_at;
///
/// let moved = scheduler.shift(("order.cancel", "42"), Shift::Later(Duration::from_secs(60))).await?;
/// assert_eq!(moved.task().map(|task| task.due_at), Some(due.after(Duration::from_secs(60))));
///
/// assert!(scheduler.cancel(("order.cancel", "42")).await?.is_done());
/// assert!(!scheduler.run_now(("order.cancel", "42")).await?.is_done());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(crate) kernel: Arc<Kernel>,
    actor: Actor,
    payload_limit: usize,
}

impl Scheduler {
    /// A scheduler that needs nothing but its store: any delay, to the millisecond while a worker runs.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime: sending goes on in the background.
    pub fn new(store: impl Store + 'static) -> Self {
        let built = Self::builder(Arc::new(store)).build();
        // Only a backend can be refused.
        built.unwrap_or_else(|error| unreachable!("the defaults are valid: {error}"))
    }

    /// Starts a scheduler over `store` with other backends than the default.
    pub fn builder(store: Arc<dyn Store>) -> SchedulerBuilder {
        SchedulerBuilder::over(store)
    }

    /// The same scheduler, for use on behalf of another: `actor` is noted of what is done through it, where history is kept
    /// ([`SchedulerBuilder::history`]), in place of `rust`. `api:NAME`, say.
    #[must_use]
    pub fn by(&self, actor: &str) -> Self {
        Self {
            actor: Actor::named(actor),
            ..self.clone()
        }
    }

    /// Returns the same scheduler, whose verbs also record this reason in the history of tasks: its first 500 characters.
    #[must_use]
    pub fn because(&self, reason: &str) -> Self {
        Self {
            actor: self.actor.because(reason),
            ..self.clone()
        }
    }

    /// The same scheduler, through which payloads may have so many bytes, whatever
    /// [`SchedulerBuilder::payload_limit`] says: for an entrance that has a limit of its own.
    #[must_use]
    pub fn payload_limit(&self, bytes: usize) -> Self {
        Self {
            payload_limit: bytes,
            ..self.clone()
        }
    }

    /// Moves a task to another time.
    pub async fn reschedule(&self, target: impl Into<Target>, due: impl Into<When>) -> Result<Answer, Error> {
        only(self.reschedule_all([(target.into(), due.into())]).await?)
    }

    /// Moves a task to another time if it is as `expect` says; else `Conflict`, unless its state answers first (`TooLate`,
    /// `Finished`, `NotFound`).
    pub async fn reschedule_if(
        &self,
        target: impl Into<Target>,
        expect: Expect,
        due: impl Into<When>,
    ) -> Result<Answer, Error> {
        let action = Action::Reschedule(due.into());
        self.change_one(target.into(), expect, action).await
    }

    /// Moves many tasks in few statements; one answer each, in the order given.
    pub async fn reschedule_all(
        &self,
        moves: impl IntoIterator<Item = (Target, When)>,
    ) -> Result<Vec<Answer>, Error> {
        let moves = moves
            .into_iter()
            .map(|(target, due)| (target, Action::Reschedule(due)));
        self.change_all(moves.collect()).await
    }

    /// The verb that moves a task, and what is noted of it; of what kind it is, where that is known.
    async fn reschedule_verb(&self, kind: Option<&Kind>, due: When) -> Result<(Verb, Note), Error> {
        due.check()?;
        let Way { overdue_after, sent } = self.way(kind, due).await?;
        let note = self.note(kind, "moved", sent);
        Ok((Verb::Reschedule { due, overdue_after }, note))
    }

    /// What is noted of what is done through this handle; to a task of what kind, where that is known.
    fn note(&self, kind: Option<&Kind>, event: &'static str, sent: Option<String>) -> Note {
        self.kernel
            .note(kind, History::Changes, sent, || self.actor.line(event))
    }

    /// Moves a task by a time span, later or earlier; earlier than now means now.
    ///
    /// Repeated after an error it may move the task twice: [`shift_if`](Self::shift_if) does not.
    pub async fn shift(&self, target: impl Into<Target>, by: Shift) -> Result<Answer, Error> {
        self.shift_if(target, Expect::Anything, by).await
    }

    /// Moves a task by a time span if it is as `expect` says; else `Conflict`, unless its state answers first (`TooLate`,
    /// `Finished`, `NotFound`).
    pub async fn shift_if(
        &self,
        target: impl Into<Target>,
        expect: Expect,
        by: Shift,
    ) -> Result<Answer, Error> {
        let target = target.into();
        target.check()?;
        let answer = self.revise(&target, expect, Revision::Shift(by)).await;
        metrics::verb(Action::Shift(by).verb(), answer_label(&answer), 1);
        answer
    }

    /// Cancels a task: once this answers [`Answer::Done`] no handler of it starts. One whose lease had ended before may still be
    /// running, until its worker notices.
    pub async fn cancel(&self, target: impl Into<Target>) -> Result<Answer, Error> {
        self.cancel_if(target, Expect::Anything).await
    }

    /// Cancels a task if it is as `expect` says; else `Conflict`, unless its state answers first (`TooLate`, `Finished`,
    /// `NotFound`).
    pub async fn cancel_if(&self, target: impl Into<Target>, expect: Expect) -> Result<Answer, Error> {
        self.change_one(target.into(), expect, Action::Cancel).await
    }

    /// Cancels many tasks in few statements; one answer each, in the order given.
    pub async fn cancel_all(&self, targets: impl IntoIterator<Item = Target>) -> Result<Vec<Answer>, Error> {
        let cancels = targets.into_iter().map(|target| (target, Action::Cancel));
        self.change_all(cancels.collect()).await
    }

    /// Makes a task due now. Where its kind follows a [`Check`](crate::expected::Check), the table has to say so too.
    pub async fn run_now(&self, target: impl Into<Target>) -> Result<Answer, Error> {
        self.run_now_if(target, Expect::Anything).await
    }

    /// Makes a task due now if it is as `expect` says; else `Conflict`, unless its state answers first (`TooLate`,
    /// `Finished`, `NotFound`).
    pub async fn run_now_if(&self, target: impl Into<Target>, expect: Expect) -> Result<Answer, Error> {
        self.change_one(target.into(), expect, Action::RunNow).await
    }

    /// Gives a dead task another life, due now. `Conflict` if it is live, or if a live task has its key; `Finished` if it
    /// is done or cancelled.
    pub async fn redrive(&self, target: impl Into<Target>) -> Result<Answer, Error> {
        self.redrive_if(target, Expect::Anything).await
    }

    /// As [`redrive`](Self::redrive), if the task is as `expect` says; else `Conflict`, unless its state answers first.
    pub async fn redrive_if(&self, target: impl Into<Target>, expect: Expect) -> Result<Answer, Error> {
        self.change_one(target.into(), expect, Action::Redrive).await
    }

    /// Gives a dead task up for good: it becomes cancelled, and is removed when its history is over. `Conflict` if it is
    /// live; `Finished` if it is done or cancelled.
    pub async fn dismiss(&self, target: impl Into<Target>) -> Result<Answer, Error> {
        self.dismiss_if(target, Expect::Anything).await
    }

    /// As [`dismiss`](Self::dismiss), if the task is as `expect` says; else `Conflict`, unless its state answers first.
    pub async fn dismiss_if(&self, target: impl Into<Target>, expect: Expect) -> Result<Answer, Error> {
        self.change_one(target.into(), expect, Action::Dismiss).await
    }

    async fn change_one(&self, target: Target, expect: Expect, action: Action) -> Result<Answer, Error> {
        let change = self.planned_change(target, expect, action).await?;
        only(self.change(vec![(action, change)]).await?)
    }

    async fn change_all(&self, wanted: Vec<(Target, Action)>) -> Result<Vec<Answer>, Error> {
        let mut changes = Vec::with_capacity(wanted.len());
        for (target, action) in wanted {
            let change = self.planned_change(target, Expect::Anything, action).await?;
            changes.push((action, change));
        }
        self.change(changes).await
    }

    /// Of targets that have been checked.
    async fn change(&self, changes: Vec<(Action, Change)>) -> Result<Vec<Answer>, Error> {
        let mut answers = Vec::with_capacity(changes.len());
        for batch in batches(changes) {
            for answer in self.act(batch).await? {
                answers.push(answer?);
            }
        }
        Ok(answers)
    }

    /// Changes rows as callers want it, and tells what was answered.
    async fn act(&self, batch: Vec<(Action, Change)>) -> Result<Vec<Result<Answer, Error>>, Error> {
        let (actions, changes): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let answered = self.change_batch(changes).await;
        for (at, action) in actions.into_iter().enumerate() {
            let answer = answered.as_ref().ok().and_then(|answers| answers.get(at));
            metrics::verb(action.verb(), answer.map_or(metrics::ERROR, answer_label), 1);
        }
        answered
    }

    /// The one way of every change: the rows, then the wake-ups that follow from it.
    async fn change_batch(&self, batch: Vec<Change>) -> Result<Vec<Result<Answer, Error>>, Error> {
        let kernel = &self.kernel;
        let heard = kernel.time.of(kernel.store.change(batch)).await?;
        for answer in heard.found.iter().flatten() {
            if let Answer::Done(task) = answer {
                kernel.events.publish(|| task.clone());
            }
        }
        let follow = Follow::changed(&heard, heard.found.iter().flatten());
        kernel.follow(follow).await;
        Ok(heard.found)
    }

    /// Hears what becomes of tasks through this scheduler and what is beside it, from now on.
    pub fn events(&self) -> Events {
        self.kernel.events.listen()
    }

    /// Finds a task as it is now: by key the live one, else the one that was made last.
    pub async fn find(&self, target: impl Into<Target>) -> Result<Option<Task>, Error> {
        let target = target.into();
        target.check()?;
        self.kernel.store.find(&target).await
    }

    /// A page of the tasks of one kind and state, by due time.
    pub async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        page.kind.check()?;
        let mut found = self.kernel.store.list(page).await?;
        if let Some(before) = page.before {
            found.truncate(found.partition_point(|task| task.due_at < before));
        }
        Ok(found)
    }

    /// An id for [`NewTask::id`](crate::NewTask::id): a caller that chooses the id before the call can repeat the call.
    pub fn new_id(&self) -> TaskId {
        self.kernel.clock.new_id()
    }

    /// What this scheduler, and the worker beside it, did so far.
    pub fn stats(&self) -> Stats {
        let backends = self.kernel.router.backends();
        self.kernel
            .counters
            .snapshot(backends.map(|(_, backend)| backend.foreign()).sum())
    }

    /// Has the store asked for its time before many things are done by it: one that hangs is not waited for once for each.
    async fn time_for(&self, needed: bool) -> Result<(), Error> {
        match needed {
            true => self.kernel.time.know(&*self.kernel.store).await,
            false => Ok(()),
        }
    }

    async fn way(&self, kind: Option<&Kind>, due: When) -> Result<Way, Error> {
        let remaining = self.kernel.time.until(due, &*self.kernel.store).await?;
        Ok(self.kernel.way(kind, remaining))
    }
}

/// What is told of an answer.
fn answer_label(answer: &Result<Answer, Error>) -> &'static str {
    answer.as_ref().map_or(metrics::ERROR, Answer::word)
}
