//! The caller's verbs.

mod builder;
mod shift;
mod transaction;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use self::builder::SchedulerBuilder;
pub use self::shift::Shift;
use crate::backend::TableBackend;
use crate::merger::Merger;
use crate::outbox::Outbox;
use crate::receipt::Follow;
use crate::router::{Router, Trip};
use crate::stats::Counters;
use crate::store::{Change, Expect, NewRow, Page, Store, Verb};
use crate::store_time::{Heard, StoreTime};
use crate::timestamp::millis;
use crate::{
    Answer, Check, Clock, Error, Kind, NewTask, Scheduled, Spawned, State, Stats, Target, Task, TaskId,
    Timestamp, Wake, When, defaults, place,
};

/// Schedules tasks, and moves, cancels, runs and finds them, each with a definite answer.
///
/// A cheap handle: clone it. Every verb answers when the row is durable in the store; wake-ups follow behind.
/// Every verb can be repeated after an error: see [`NewTask::id`] and [`Scheduler::shift_if`] for the two whose
/// effect could otherwise be had twice.
#[derive(Clone, Debug)]
pub struct Scheduler {
    pub(crate) parts: Arc<Parts>,
}

/// What a scheduler and the worker beside it share.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) router: Arc<Router>,
    /// The table, where it is the precise backend by default: then the sweep looks ahead for it.
    pub(crate) table: Option<Arc<TableBackend>>,
    /// What tasks of a kind follow.
    pub(crate) checks: BTreeMap<Kind, Check>,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    merger: Merger,
    outbox: Outbox,
    payload_limit: usize,
    /// Ends with the scheduler.
    _watching: Spawned,
}

impl Parts {
    /// Does what follows from a verb, behind the caller's back.
    async fn follow(&self, Follow { trips, obsolete }: Follow) {
        self.outbox.remove(obsolete);
        self.outbox.send(trips).await;
    }

    /// Sends wake-ups behind the caller's back.
    pub(crate) async fn send_soon(&self, trips: Vec<Trip>) {
        self.outbox.send(trips).await;
    }
}

/// How many bytes the headers of a task may have, in all.
const HEADERS_LIMIT: usize = 64 << 10;

impl Scheduler {
    /// A scheduler that needs nothing but its store: any delay, to the millisecond while a worker runs.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime: sending goes on in the background.
    pub fn new(store: impl Store + 'static) -> Self {
        let built = Self::builder(Arc::new(store)).build();
        // Only a backend can be refused, and the table is not.
        built.unwrap_or_else(|error| unreachable!("the defaults are valid: {error}"))
    }

    /// Starts a scheduler over `store` with other backends than the default.
    pub fn builder(store: Arc<dyn Store>) -> SchedulerBuilder {
        SchedulerBuilder::over(store)
    }

    /// Schedules a task.
    ///
    /// Concurrent callers share calls of the store, and so commits; each waits for its own row.
    pub async fn schedule(&self, task: NewTask) -> Result<Scheduled, Error> {
        only(self.schedule_all([task]).await?)
    }

    /// Schedules many tasks in few statements; one answer each, in the order given. Nothing is scheduled if one of
    /// them cannot be used.
    pub async fn schedule_all(
        &self,
        tasks: impl IntoIterator<Item = NewTask>,
    ) -> Result<Vec<Scheduled>, Error> {
        let parts = &self.parts;
        let mut rows = self.rows(tasks).await?;
        let mut answers = Vec::with_capacity(rows.len());
        while !rows.is_empty() {
            let rest = rows.split_off(rows.len().min(defaults::BATCH));
            let heard = parts.merger.insert(std::mem::replace(&mut rows, rest)).await?;
            parts
                .follow(Follow::scheduled(&heard, heard.found.iter().flatten()))
                .await;
            for answer in heard.found {
                answers.push(answer?);
            }
        }
        Ok(answers)
    }

    /// The rows of tasks, each of which can be used.
    async fn rows(&self, tasks: impl IntoIterator<Item = NewTask>) -> Result<Vec<NewRow>, Error> {
        // First all of them: else the future would be as little `Send` as whatever they come from.
        let tasks: Vec<_> = tasks.into_iter().collect();
        let mut rows = Vec::with_capacity(tasks.len());
        for task in tasks {
            rows.push(self.row(task).await?);
        }
        Ok(rows)
    }

    async fn row(&self, task: NewTask) -> Result<NewRow, Error> {
        let NewTask {
            id,
            kind,
            key,
            payload,
            headers,
            due,
            max_attempts,
            replace,
        } = task;
        kind.check()?;
        if let Some(key) = &key {
            key.check()?;
        } else if self.parts.checks.contains_key(&kind) {
            return Err(Error::invalid(
                "key",
                "none",
                format!("allowed is a key, by which tasks of kind {kind} are checked"),
            ));
        }
        check(due)?;
        if max_attempts == Some(0) {
            return Err(Error::invalid("max_attempts", 0, "allowed is 1 or more"));
        }
        let payload = payload.map_err(|source| Error::Encode {
            kind: kind.to_string(),
            source,
        })?;
        let limit = self.parts.payload_limit;
        if payload.len() > limit {
            return Err(Error::invalid(
                "payload",
                format_args!("{} bytes", payload.len()),
                format!("allowed are up to {limit} bytes (SchedulerBuilder::payload_limit)"),
            ));
        }
        let in_headers: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
        if in_headers > HEADERS_LIMIT {
            return Err(Error::invalid(
                "headers",
                format_args!("{in_headers} bytes"),
                format!("allowed are up to {HEADERS_LIMIT} bytes in all"),
            ));
        }
        let look_in = self.look_in(Some(&kind), due).await?;
        let id = id.unwrap_or_else(|| {
            let made = self.parts.clock.new_id();
            key.as_ref()
                .map_or(made, |key| place::id_with_key(made, &kind, key))
        });
        Ok(NewRow {
            id,
            kind,
            key,
            payload,
            headers,
            due,
            look_in,
            max_attempts,
            replace,
        })
    }

    /// Moves a task to another time.
    pub async fn reschedule(&self, target: impl Into<Target>, due: impl Into<When>) -> Result<Answer, Error> {
        only(self.reschedule_all([(target.into(), due.into())]).await?)
    }

    /// Moves many tasks in few statements; one answer each, in the order given.
    pub async fn reschedule_all(
        &self,
        moves: impl IntoIterator<Item = (Target, When)>,
    ) -> Result<Vec<Answer>, Error> {
        let moves: Vec<_> = moves.into_iter().collect();
        let mut changes = Vec::with_capacity(moves.len());
        for (target, due) in moves {
            let kind = target.kind().cloned();
            let change = self.reschedule_change(target, kind.as_ref(), due, Expect::Anything);
            changes.push(change.await?);
        }
        self.change(changes).await
    }

    async fn reschedule_change(
        &self,
        target: Target,
        kind: Option<&Kind>,
        due: When,
        expect: Expect,
    ) -> Result<Change, Error> {
        check(due)?;
        let look_in = self.look_in(kind, due).await?;
        Ok(Change {
            target,
            verb: Verb::Reschedule { due, look_in },
            expect,
        })
    }

    /// Moves a task by a time span, later or earlier; earlier than now means now.
    ///
    /// Repeated after an error it may move the task twice: [`shift_if`](Self::shift_if) does not.
    pub async fn shift(&self, target: impl Into<Target>, by: Shift) -> Result<Answer, Error> {
        self.shift_if(target, Expect::Anything, by).await
    }

    /// Moves a task by a time span if it is as `expect` says; otherwise `Conflict`.
    pub async fn shift_if(
        &self,
        target: impl Into<Target>,
        expect: Expect,
        by: Shift,
    ) -> Result<Answer, Error> {
        let target = target.into();
        target.check()?;
        loop {
            let found = self.parts.store.find(&target).await?;
            let change = match self.shifted(found, expect, by).await? {
                Ok(change) => change,
                Err(answer) => return Ok(answer),
            };
            match only(self.change(vec![change]).await?)? {
                // Somebody else moved it in between: look again, by the caller's own expectation.
                Answer::Conflict(_) => {}
                answer => return Ok(answer),
            }
        }
    }

    /// The change that shifts a task as it was found; or the answer, if there is nothing to shift.
    async fn shifted(
        &self,
        found: Option<Task>,
        expect: Expect,
        by: Shift,
    ) -> Result<Result<Change, Answer>, Error> {
        let Some(task) = found else {
            return Ok(Err(Answer::NotFound));
        };
        match task.state {
            State::Scheduled => {}
            State::Running => return Ok(Err(Answer::TooLate(task))),
            State::Done | State::Dead | State::Cancelled => return Ok(Err(Answer::Finished(task))),
        }
        if !expect.holds(&task) {
            return Ok(Err(Answer::Conflict(task)));
        }
        let moved = by.from(task.due_at);
        let mut due = When::At(moved);
        check(due)?;
        if self.parts.time.has_passed(moved, &*self.parts.store).await? {
            // Deadlines and lateness count from the due time: one in the past would use them up.
            due = When::After(Duration::ZERO);
        }
        let read = match expect {
            Expect::Version(_) => expect,
            // The due time, not the version: a hop on the way is no conflict.
            Expect::Anything | Expect::Due(_) => Expect::Due(task.due_at),
        };
        let change = self
            .reschedule_change(Target::Id(task.id), Some(&task.kind), due, read)
            .await?;
        Ok(Ok(change))
    }

    /// Cancels a task: once this answers [`Answer::Done`] its handler never starts.
    pub async fn cancel(&self, target: impl Into<Target>) -> Result<Answer, Error> {
        only(self.cancel_all([target.into()]).await?)
    }

    /// Cancels many tasks in few statements; one answer each, in the order given.
    pub async fn cancel_all(&self, targets: impl IntoIterator<Item = Target>) -> Result<Vec<Answer>, Error> {
        self.change_each(targets, Verb::Cancel).await
    }

    /// Makes a task due now.
    pub async fn run_now(&self, target: impl Into<Target>) -> Result<Answer, Error> {
        let look_in = self.look_in(None, When::After(Duration::ZERO)).await?;
        only(
            self.change_each([target.into()], Verb::RunNow { look_in })
                .await?,
        )
    }

    /// Gives a dead task another life, due now. `Conflict` if it is not dead, or if its key is taken by a live task.
    pub async fn redrive(&self, target: impl Into<Target>) -> Result<Answer, Error> {
        let look_in = self.look_in(None, When::After(Duration::ZERO)).await?;
        only(
            self.change_each([target.into()], Verb::Redrive { look_in })
                .await?,
        )
    }

    /// Gives a dead task up for good: it becomes cancelled, and is removed when its history is over. `Conflict` if it is
    /// not dead.
    pub async fn dismiss(&self, target: impl Into<Target>) -> Result<Answer, Error> {
        only(self.change_each([target.into()], Verb::Dismiss).await?)
    }

    async fn change_each(
        &self,
        targets: impl IntoIterator<Item = Target>,
        verb: Verb,
    ) -> Result<Vec<Answer>, Error> {
        let expect = Expect::Anything;
        let changes = targets.into_iter().map(|target| Change {
            target,
            verb: verb.clone(),
            expect,
        });
        self.change(changes.collect()).await
    }

    /// The one way of every change: the rows, then the wake-ups that follow from it.
    async fn change(&self, mut changes: Vec<Change>) -> Result<Vec<Answer>, Error> {
        for change in &changes {
            change.target.check()?;
        }
        let parts = &self.parts;
        let mut answers = Vec::with_capacity(changes.len());
        while !changes.is_empty() {
            let rest = changes.split_off(changes.len().min(defaults::BATCH));
            let asked = parts.clock.instant();
            let stamped = parts.store.change(std::mem::replace(&mut changes, rest)).await?;
            let heard = parts.time.heard(asked, stamped);
            parts
                .follow(Follow::changed(&heard, heard.found.iter().flatten()))
                .await;
            for answer in heard.found {
                answers.push(answer?);
            }
        }
        Ok(answers)
    }

    /// The task as it is now; by key the live one, else the one that was live last.
    pub async fn find(&self, target: impl Into<Target>) -> Result<Option<Task>, Error> {
        let target = target.into();
        target.check()?;
        self.parts.store.find(&target).await
    }

    /// A page of the tasks of one kind and state, by due time.
    pub async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        page.kind.check()?;
        self.parts.store.list(page).await
    }

    /// Sends the wake-ups that are still waiting, and closes the backends: the end of a process that goes in peace.
    ///
    /// Not needed for safety: what was not sent is found by the sweep. Stop the worker first; verbs still work
    /// afterwards, but their wake-ups are left to the sweep. A backend that does not close within
    /// [`defaults::STOP_TIMEOUT`] is an error; the others are closed all the same.
    pub async fn close(&self) -> Result<(), Error> {
        let parts = &self.parts;
        // A backend that hangs must not keep a process from ending.
        if parts
            .clock
            .timeout(defaults::STOP_TIMEOUT, parts.outbox.flush())
            .await
            .is_none()
        {
            tracing::warn!("wake-ups were not sent before the end; the sweep will find their tasks");
        }
        let mut result = Ok(());
        for (_, backend) in parts.router.backends() {
            let closed = parts.clock.timeout(defaults::STOP_TIMEOUT, backend.close()).await;
            result = result.and(closed.unwrap_or_else(|| Err(not_closed(backend.name()))));
        }
        result
    }

    /// An id for [`NewTask::id`]: who chooses the id before the call can repeat the call.
    pub fn new_id(&self) -> TaskId {
        self.parts.clock.new_id()
    }

    /// What this scheduler, and the worker beside it, did so far.
    pub fn stats(&self) -> Stats {
        let backends = self.parts.router.backends();
        self.parts
            .counters
            .snapshot(backends.map(|(_, backend)| backend.foreign()).sum())
    }

    async fn look_in(&self, kind: Option<&Kind>, due: When) -> Result<Duration, Error> {
        let remaining = self.parts.time.until(due, &*self.parts.store).await?;
        Ok(self.parts.router.look_in(kind, remaining))
    }
}

/// Refuses a due time that the rows cannot hold.
fn check(due: When) -> Result<(), Error> {
    let fits = match due {
        When::After(delay) => millis(delay) <= Timestamp::MAX.as_millis(),
        When::At(time) => time <= Timestamp::MAX,
    };
    if fits {
        return Ok(());
    }
    let value = match due {
        When::After(delay) => format!("after {delay:?}"),
        When::At(time) => time.to_string(),
    };
    Err(Error::invalid(
        "due time",
        value,
        "allowed are times up to the end of the year 9999",
    ))
}

fn only<T>(answers: Vec<T>) -> Result<T, Error> {
    answers.into_iter().next().ok_or_else(|| Error::Store {
        store: "custom",
        transient: false,
        source: "the store gave no answer for a row".into(),
    })
}

impl Follow {
    fn scheduled<'a, T>(heard: &Heard<T>, answers: impl Iterator<Item = &'a Scheduled>) -> Self {
        let mut follow = Self::default();
        for scheduled in answers {
            match scheduled {
                Scheduled::New(task) => follow.trips.push(trip(heard, task)),
                Scheduled::Replaced(task) => {
                    follow.trips.push(trip(heard, task));
                    follow.obsolete.push(before(task));
                }
                Scheduled::Existing(_) | Scheduled::Running(_) => {}
            }
        }
        follow
    }

    fn changed<'a, T>(heard: &Heard<T>, answers: impl Iterator<Item = &'a Answer>) -> Self {
        let mut follow = Self::default();
        for answer in answers {
            let Answer::Done(task) = answer else {
                continue;
            };
            follow.obsolete.push(before(task));
            if task.state == State::Scheduled {
                follow.trips.push(trip(heard, task));
            }
        }
        follow
    }
}

fn not_closed(backend: &'static str) -> Error {
    Error::Backend {
        backend,
        transient: false,
        source: format!("not closed within {:?}", defaults::STOP_TIMEOUT).into(),
    }
}

/// The wake-up of a task as it now is.
pub(crate) fn trip<T>(heard: &Heard<T>, task: &Task) -> Trip {
    let wake = Wake {
        id: task.id,
        kind: task.kind.clone(),
        version: task.version,
    };
    Trip {
        wake,
        due: heard.instant_of(task.due_at),
    }
}

/// The wake-up of a task as it was before its last transition, which nobody needs any more.
fn before(task: &Task) -> Wake {
    Wake {
        id: task.id,
        kind: task.kind.clone(),
        version: task.version.saturating_sub(1),
    }
}
