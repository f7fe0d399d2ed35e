//! What a user writes: an async function, what it is given, and what it may answer.

mod undecodable;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::backend::WokenBy;
use crate::store::line::Line;
use crate::store::{Ending, History, Note, Transaction};
use crate::{Error, Failure, Key, Task, TaskId, Timestamp};

/// What a handler answers when it did not fail.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::Outcome;
///
/// fn outcome(status: u16) -> Outcome {
///     match status {
///         200 => Outcome::Done,
///         404 => Outcome::Discard("the customer is gone".to_owned()),
///         429 => Outcome::Snooze(Duration::from_secs(30)),
///         other => Outcome::Retry(format!("answered {other}")),
///     }
/// }
///
/// assert_eq!(outcome(200), Outcome::Done);
/// assert_eq!(outcome(503), Outcome::Retry("answered 503".to_owned()));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The task is done.
    Done,
    /// The attempt failed for this reason: try again after the policy's pause, as long as the policy allows.
    Retry(String),
    /// The attempt failed for this reason, and the service that was asked said not to come back within this time: try again as with
    /// `Retry`, but let the policy's pause begin only then.
    RetryAfter(String, Duration),
    /// Not yet: come again after this long. This was no attempt, and the deadline stays where it is.
    Snooze(Duration),
    /// The same for this reason, which people find in the task's [`last_error`](crate::Task::last_error).
    SnoozeBecause(String, Duration),
    /// Done for this time: the same task under the same key, once more, due after this long.
    Again(Duration),
    /// It can never succeed, for this reason: dead at once.
    Discard(String),
}

/// What a handler is told beside the payload.
///
/// ```
/// use delayline::{Context, Failure, Outcome};
///
/// async fn charge(order: u64, context: Context) -> Result<Outcome, Failure> {
///     if context.attempt() > 3 {
///         return Ok(Outcome::Discard(format!("order {order} could not be charged")));
///     }
///     // The same for every attempt, so that a payment service that is asked twice charges once.
///     let idempotency_key = context.id();
///     println!("charge order {order}, as {idempotency_key}, {:?} late", context.lateness());
///     Ok(Outcome::Done)
/// }
/// # use delayline::{NewTask, Scheduler, State, Worker, store::MemoryStore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// # let scheduler = Scheduler::new(MemoryStore::new());
/// # let id = scheduler.schedule(NewTask::new("order.charge", &42)).await.unwrap().task().id;
/// # let charged = async {
/// #     while scheduler.find(id).await.unwrap().unwrap().state != State::Done {
/// #         tokio::time::sleep(std::time::Duration::from_millis(10)).await;
/// #     }
/// # };
/// # Worker::new(&scheduler).handle("order.charge", charge).run_until(charged).await.unwrap();
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    task: Arc<Task>,
    lateness: Duration,
    woken_by: WokenBy,
    finishing: Finishing,
    /// What is noted of what happens to the task.
    history: History,
}

/// Whether a handler has finished its task in a transaction of its own, which commits or does not.
#[derive(Clone, Debug, Default)]
pub(crate) struct Finishing(Arc<AtomicBool>);

impl Finishing {
    pub(crate) fn has_begun(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn begin(&self) -> Begun<'_> {
        self.0.store(true, Ordering::Release);
        Begun(self)
    }
}

/// Marks a finish whose answer has not come; if it is dropped, the handler has not finished its task.
struct Begun<'f>(&'f Finishing);

impl Begun<'_> {
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Begun<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl Context {
    pub(crate) fn new(
        task: Arc<Task>,
        lateness: Duration,
        woken_by: WokenBy,
        finishing: Finishing,
        history: History,
    ) -> Self {
        Self {
            task,
            lateness,
            woken_by,
            finishing,
            history,
        }
    }

    /// Finishes the task within a transaction of the handler's own, so that its effect and "done" commit together: the
    /// effect happens once, whatever dies when.
    ///
    /// `transaction` is made by the `join` of the store that keeps the task. The handler commits afterwards and answers
    /// [`Outcome::Done`]. If it does not commit, the attempt has failed. On [`Error::ClaimLost`] it must roll back:
    /// the task may be another worker's by now. It must also roll back if it drops this call before the answer.
    pub async fn finish_in(&self, mut transaction: impl Transaction) -> Result<(), Error> {
        // Before the statement: from then on only the handler knows whether the row is still to be held.
        let begun = self.finishing.begin();
        let id = self.task.id;
        let note = Note::kept(self.history, History::All, None, || {
            Line::ended(Some(&self.task), &Ending::Done)
        });
        if !transaction.finish(id, self.task.version, note).await? {
            return Err(Error::ClaimLost { id });
        }
        begun.keep();
        Ok(())
    }

    /// The task as it was claimed.
    pub fn task(&self) -> &Task {
        &self.task
    }

    /// The task's id: the same for every attempt, so a good idempotency key.
    pub fn id(&self) -> TaskId {
        self.task.id
    }

    /// The caller's own name for the task, if it gave one.
    pub fn key(&self) -> Option<&str> {
        self.task.key.as_ref().map(Key::as_str)
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.task.attempt
    }

    /// When the task was due.
    pub fn due_at(&self) -> Timestamp {
        self.task.due_at
    }

    /// How long after its due time the handler was started, by the store's clock. Where the store was slow to answer it
    /// is rather too long than too short, by up to the time that the answer took.
    pub fn lateness(&self) -> Duration {
        self.lateness
    }

    /// What brought the task to this worker: tells which part of the lateness is whose.
    pub fn woken_by(&self) -> WokenBy {
        self.woken_by
    }

    /// The payload's bytes.
    pub fn payload(&self) -> &[u8] {
        &self.task.payload
    }
}

pub(crate) type Answered = Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send>>;

/// A handler of whatever payload, as the worker keeps it.
pub(crate) type Handler = Arc<dyn Fn(Context) -> Answered + Send + Sync>;

/// A handler whose payload is JSON. One that cannot be decoded is a failed attempt: a later release may know it.
pub(crate) fn typed<T, F, A>(handler: F) -> Handler
where
    T: DeserializeOwned,
    F: Fn(T, Context) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    Arc::new(move |context| match serde_json::from_slice(context.payload()) {
        Ok(payload) => Box::pin(handler(payload, context)),
        Err(error) => {
            let (kind, type_of) = (&context.task().kind, std::any::type_name::<T>());
            let reason = format!(
                "the payload of this {kind} task is no {type_of}: {}",
                undecodable::why(&error)
            );
            Box::pin(std::future::ready(Ok(Outcome::Retry(reason))))
        }
    })
}

/// A handler that reads the payload's bytes itself.
pub(crate) fn raw<F, A>(handler: F) -> Handler
where
    F: Fn(Context) -> A + Send + Sync + 'static,
    A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    Arc::new(move |context| Box::pin(handler(context)))
}
