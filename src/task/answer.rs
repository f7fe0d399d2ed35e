//! Answers of the verbs: what came of scheduling a task, and of changing one.

use crate::Task;

/// What came of scheduling a task. In each case there is one task, and it is in the answer.
///
/// There will be no other variant: a `match` needs no `_`.
///
/// ```
/// use delayline::store::MemoryStore;
/// use delayline::{NewTask, Scheduled, Scheduler};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// let task = || NewTask::new("order.cancel", &42).key("42");
///
/// let first = scheduler.schedule(task()).await?;
/// assert!(matches!(first, Scheduled::New(_)));
/// // Who has lost the answer asks again, and there is still one task.
/// let second = scheduler.schedule(task()).await?;
/// assert!(matches!(second, Scheduled::Existing(_)));
/// assert_eq!(second.task().id, first.task().id);
///
/// let third = scheduler.schedule(task().replace()).await?;
/// assert!(matches!(third, Scheduled::Replaced(_)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scheduled {
    /// It is new.
    New(Task),
    /// It was there already, by its id or by its kind and key, and is as it was.
    Existing(Task),
    /// It was there already, and has taken the new time and payload.
    Replaced(Task),
    /// It is running right now, and is as it was; what it was scheduled with has not replaced anything.
    Running(Task),
}

impl Scheduled {
    /// The one task.
    pub fn task(&self) -> &Task {
        match self {
            Self::New(task) | Self::Existing(task) | Self::Replaced(task) | Self::Running(task) => task,
        }
    }

    /// What came of it in a word, for logs and other languages: `new`, `existing`, `replaced` or `running`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::New(_) => "new",
            Self::Existing(_) => "existing",
            Self::Replaced(_) => "replaced",
            Self::Running(_) => "running",
        }
    }
}

/// What came of changing a task: true when it was given, and for as long as nobody changes the task again.
///
/// There will be no other variant: a `match` needs no `_`.
///
/// ```
/// use delayline::store::MemoryStore;
/// use delayline::{Answer, NewTask, Scheduler};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// scheduler.schedule(NewTask::new("order.cancel", &42).key("42")).await?;
///
/// // The customer has paid.
/// let told = match scheduler.cancel(("order.cancel", "42")).await? {
///     Answer::Done(_) => "the order stands",
///     Answer::TooLate(_) => "the order is being cancelled right now",
///     Answer::Finished(task) if task.state == delayline::State::Done => "the order was cancelled",
///     Answer::Finished(_) | Answer::Conflict(_) | Answer::NotFound => "nothing was going to cancel it",
/// };
/// assert_eq!(told, "the order stands");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "the answer says whether the task was changed"]
pub enum Answer {
    /// It was changed, and is now so. No handler starts for what it was before.
    Done(Task),
    /// Too late: a worker has claimed it, its handler runs or is about to, and it is as it was.
    TooLate(Task),
    /// Too late: it is done, dead or cancelled already.
    Finished(Task),
    /// It is not as the caller expected, so nothing was changed; this is how it is.
    Conflict(Task),
    /// There is no such task: there never was, or its history has been removed.
    NotFound,
}

impl Answer {
    /// Whether the task was changed.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }

    /// What came of it in a word, for logs and other languages: `done`, `too_late`, `finished`, `conflict` or `not_found`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::TooLate(_) => "too_late",
            Self::Finished(_) => "finished",
            Self::Conflict(_) => "conflict",
            Self::NotFound => "not_found",
        }
    }

    /// The task as it is now, if there is one.
    pub fn task(&self) -> Option<&Task> {
        match self {
            Self::Done(task) | Self::TooLate(task) | Self::Finished(task) | Self::Conflict(task) => {
                Some(task)
            }
            Self::NotFound => None,
        }
    }
}
