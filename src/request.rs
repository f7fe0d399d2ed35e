//! What callers say to the scheduler, and what it answers.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::{Error, Key, Kind, Shift, State, Task, TaskId, Timestamp};

/// A task to schedule: what, when, and under which name.
///
/// Due at once unless [`after`](Self::after) or [`at`](Self::at) says otherwise.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::NewTask;
/// use serde::Serialize;
///
/// #[derive(Serialize)]
/// struct Reminder<'a> {
///     to: &'a str,
/// }
///
/// let reminder = NewTask::new("mail.remind", &Reminder { to: "ada@example.org" })
///     .key("ada@example.org")
///     .header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
///     .after(Duration::from_secs(3 * 24 * 3600))
///     .replace();
/// ```
#[derive(Debug)]
pub struct NewTask {
    pub(crate) id: Option<TaskId>,
    pub(crate) kind: Kind,
    pub(crate) key: Option<Key>,
    pub(crate) payload: Result<Vec<u8>, serde_json::Error>,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) due: When,
    pub(crate) max_attempts: Option<u32>,
    pub(crate) replace: bool,
}

impl NewTask {
    /// A task of `kind` whose handler is given `payload`, as JSON.
    ///
    /// A payload that cannot be encoded is reported when the task is scheduled.
    pub fn new(kind: impl Into<Kind>, payload: &(impl Serialize + ?Sized)) -> Self {
        Self::from_payload(kind.into(), serde_json::to_vec(payload))
    }

    /// A task of `kind` whose handler is given `payload` as it is: see [`Context::payload`](crate::Context::payload).
    pub fn from_bytes(kind: impl Into<Kind>, payload: impl Into<Vec<u8>>) -> Self {
        Self::from_payload(kind.into(), Ok(payload.into()))
    }

    fn from_payload(kind: Kind, payload: Result<Vec<u8>, serde_json::Error>) -> Self {
        Self {
            id: None,
            kind,
            key: None,
            payload,
            headers: BTreeMap::new(),
            due: When::After(Duration::ZERO),
            max_attempts: None,
            replace: false,
        }
    }

    /// The caller's own name for the task, such as the order's id; at most one task of a kind is live under it.
    #[must_use]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Due `delay` from now, by the store's clock; a part of a millisecond is rounded up.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = When::After(delay);
        self
    }

    /// Due at `time`; a time that has passed means at once.
    #[must_use]
    pub fn at(mut self, time: impl Into<Timestamp>) -> Self {
        self.due = When::At(time.into());
        self
    }

    /// The id of the new task. Who chooses it can repeat the call after a lost answer: the second finds the first.
    #[must_use]
    pub fn id(mut self, id: TaskId) -> Self {
        self.id = Some(id);
        self
    }

    /// A header, which travels with the task and is shown to its handler.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Given up after this many attempts, whatever the policy of its kind says; at least 1.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// If a task is already scheduled under the same kind and key, it takes this one's time and payload.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replace = true;
        self
    }
}

/// A due time: from now, or by the calendar. There is no third, so a store may match both.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::store::MemoryStore;
/// use delayline::{NewTask, Scheduler, Timestamp};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// let id = scheduler.schedule(NewTask::new("post.publish", &7)).await?.task().id;
///
/// let new_year: Timestamp = "2030-01-01T00:00:00Z".parse()?;
/// let moved = scheduler.reschedule(id, new_year).await?;
/// assert_eq!(moved.task().map(|task| task.due_at), Some(new_year));
///
/// assert!(scheduler.reschedule(id, Duration::from_secs(60)).await?.is_done());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// This long from now, by the store's clock.
    After(Duration),
    /// At this moment.
    At(Timestamp),
}

impl From<Duration> for When {
    fn from(delay: Duration) -> Self {
        Self::After(delay)
    }
}

impl From<Timestamp> for When {
    fn from(time: Timestamp) -> Self {
        Self::At(time)
    }
}

impl From<SystemTime> for When {
    fn from(time: SystemTime) -> Self {
        Self::At(time.into())
    }
}

/// Which task: by its id, or by its kind and the caller's own name for it. A store has to know both, and there is no third.
///
/// ```
/// use delayline::store::MemoryStore;
/// use delayline::{NewTask, Scheduler};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// let task = scheduler.schedule(NewTask::new("post.publish", &7).key("post-7")).await?;
///
/// let by_id = scheduler.find(task.task().id).await?;
/// let by_key = scheduler.find(("post.publish", "post-7")).await?;
/// assert_eq!(by_id, by_key);
/// assert_eq!(by_id.as_ref(), Some(task.task()));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The task of this id.
    Id(TaskId),
    /// The live task of this kind and key, else the one that was live last.
    Key(Kind, Key),
}

impl From<TaskId> for Target {
    fn from(id: TaskId) -> Self {
        Self::Id(id)
    }
}

impl<K: Into<Kind>, N: Into<Key>> From<(K, N)> for Target {
    fn from((kind, key): (K, N)) -> Self {
        Self::Key(kind.into(), key.into())
    }
}

impl Target {
    /// The kind, as far as the target says it.
    pub(crate) fn kind(&self) -> Option<&Kind> {
        match self {
            Self::Id(_) => None,
            Self::Key(kind, _) => Some(kind),
        }
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        match self {
            Self::Id(_) => Ok(()),
            Self::Key(kind, key) => kind.check().and_then(|()| key.check()),
        }
    }
}

/// What a row must be like for a change to apply.
///
/// Every hop on the way is a new version too: who cares about the time only expects a due time. A store has to know all of
/// them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Expect {
    /// Anything.
    #[default]
    Anything,
    /// It must have this version.
    Version(u64),
    /// It must have this due time.
    Due(Timestamp),
}

/// What can be done with a task that is there: see [`Scheduler::change_each`](crate::Scheduler::change_each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// Cancel it.
    Cancel,
    /// Move it to another time.
    Reschedule(When),
    /// Move it by a time span from the time that its [`Expect::Due`] says.
    Shift(Shift),
    /// Make it due now.
    RunNow,
    /// Give it another life if it is dead, due now.
    Redrive,
    /// Give it up for good if it is dead.
    Dismiss,
}

impl Action {
    /// The verb of the scheduler that does it.
    pub(crate) const fn verb(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Reschedule(_) => "reschedule",
            Self::Shift(_) => "shift",
            Self::RunNow => "run_now",
            Self::Redrive => "redrive",
            Self::Dismiss => "dismiss",
        }
    }
}

impl Expect {
    /// Whether `task` is so.
    pub fn holds(self, task: &Task) -> bool {
        match self {
            Self::Anything => true,
            Self::Version(version) => task.version == version,
            Self::Due(due) => task.due_at == due,
        }
    }
}

/// Which rows a list shows.
///
/// ```
/// use delayline::store::{MemoryStore, Page};
/// use delayline::{NewTask, Scheduler, State};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// scheduler.schedule_all((0..5).map(|post| NewTask::new("post.publish", &post))).await?;
///
/// let page = Page::new("post.publish", State::Scheduled).limit(3);
/// let first = scheduler.list(&page).await?;
/// let rest = scheduler.list(&page.after(&first[2])).await?;
/// assert_eq!((first.len(), rest.len()), (3, 2));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Page {
    /// Of this kind.
    pub kind: Kind,
    /// In this state.
    pub state: State,
    /// After this one, the last of the page before: its due time and id.
    pub after: Option<(Timestamp, TaskId)>,
    /// Due before this; a store may list others too, which [`Scheduler::list`](crate::Scheduler::list) leaves out.
    pub before: Option<Timestamp>,
    /// How many at the most.
    pub limit: usize,
}

impl Page {
    /// The first 100 of a kind and a state.
    pub fn new(kind: impl Into<Kind>, state: State) -> Self {
        Self {
            kind: kind.into(),
            state,
            after: None,
            before: None,
            limit: 100,
        }
    }

    /// Only those that are due at this time or later.
    #[must_use]
    pub fn due_from(mut self, time: Timestamp) -> Self {
        let last_before = Timestamp::from_millis(time.as_millis().saturating_sub(1));
        self.after = Some((last_before, TaskId::from_bytes([u8::MAX; 16])));
        self
    }

    /// Only those that are due before this time.
    #[must_use]
    pub fn due_before(mut self, time: Timestamp) -> Self {
        self.before = Some(time);
        self
    }

    /// The page after one that ended with `last`.
    #[must_use]
    pub fn after(mut self, last: &Task) -> Self {
        self.after = Some((last.due_at, last.id));
        self
    }

    /// How many at the most.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }
}

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
