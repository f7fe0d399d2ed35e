//! What callers say to the scheduler, and what it answers.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::{Error, Key, Kind, Task, TaskId, Timestamp};

/// A task to schedule: what, when, and under which name.
///
/// Due at once unless [`after`](Self::after) or [`at`](Self::at) says otherwise.
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

/// A due time: from now, or by the calendar.
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

/// Which task: by its id, or by its kind and the caller's own name for it.
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

/// What came of scheduling a task. In each case there is one task, and it is in the answer.
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
}

/// What came of changing a task: true when it was given, and for as long as nobody changes the task again.
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
