//! Answers of the verbs.

use crate::Task;

/// The outcome of scheduling a task. In each case there is one task, and it is in the answer.
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
/// // A caller that lost the answer asks again, and there is still one task.
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
    /// The task is new.
    New(Task),
    /// The task was there already, by its id or by its kind and key, and is unchanged.
    Existing(Task),
    /// The task was there already, and has taken the new time and payload.
    Replaced(Task),
    /// The task of this kind and key is running right now, and is unchanged, with [`replace`](crate::NewTask::replace) or without:
    /// the new time and payload were not taken, and nothing will happen at that time.
    Running(Task),
}

impl Scheduled {
    /// Returns the one task.
    pub fn task(&self) -> &Task {
        match self {
            Self::New(task) | Self::Existing(task) | Self::Replaced(task) | Self::Running(task) => task,
        }
    }

    /// Names the outcome in a word, for logs and other languages: `new`, `existing`, `replaced` or `running`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::New(_) => "new",
            Self::Existing(_) => "existing",
            Self::Replaced(_) => "replaced",
            Self::Running(_) => "running",
        }
    }
}

/// What became of a change of a task. It was true when the row was read; where it is `Done`, the change is written.
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
    /// The task was changed. No handler starts for what it was before.
    Done(Task),
    /// Too late: the task is claimed, so its handler runs or may start at any moment, and it is unchanged.
    TooLate(Task),
    /// Too late: the task is done, dead or cancelled already.
    Finished(Task),
    /// Nothing was changed: the task is not as the caller expected, or is not dead where it has to be, or another live task
    /// has the key that it would need. This is the task that is in the way, as it is now.
    Conflict(Task),
    /// There is no such task: there never was, or its history has been removed.
    NotFound,
}

impl Answer {
    /// Says whether the task was changed.
    pub fn is_done(&self) -> bool {
        matches!(self, Self::Done(_))
    }

    /// Names the outcome in a word, for logs and other languages: `done`, `too_late`, `finished`, `conflict` or
    /// `not_found`.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Done(_) => "done",
            Self::TooLate(_) => "too_late",
            Self::Finished(_) => "finished",
            Self::Conflict(_) => "conflict",
            Self::NotFound => "not_found",
        }
    }

    /// Returns the task as it is now, if there is one.
    pub fn task(&self) -> Option<&Task> {
        match self {
            Self::Done(task) | Self::TooLate(task) | Self::Finished(task) | Self::Conflict(task) => {
                Some(task)
            }
            Self::NotFound => None,
        }
    }
}
