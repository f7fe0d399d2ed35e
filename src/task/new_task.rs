//! Describes a task to schedule.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::when::When;
use crate::{Key, Kind, TaskId, Timestamp};

/// A task to schedule: what, when, and under which key.
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
    /// Makes a task of `kind` whose handler gets `payload`, as JSON.
    ///
    /// A payload that cannot be encoded is reported when the task is scheduled.
    pub fn new(kind: impl Into<Kind>, payload: &(impl Serialize + ?Sized)) -> Self {
        Self::from_payload(kind.into(), serde_json::to_vec(payload))
    }

    /// Makes a task of `kind` whose handler gets `payload` as it is: see [`Context::payload`](crate::Context::payload).
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

    /// Sets the caller's own name for the task, such as the order's id; at most one task of a kind is live under it.
    #[must_use]
    pub fn key(mut self, key: impl Into<Key>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Makes it due `delay` from now, by the store's clock; a part of a millisecond is rounded up.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = When::After(delay);
        self
    }

    /// Makes it due at `time`; a time that has passed means at once.
    #[must_use]
    pub fn at(mut self, time: impl Into<Timestamp>) -> Self {
        self.due = When::At(time.into());
        self
    }

    /// Sets the id of the new task. A caller that chooses it can repeat the call after a lost answer: the second finds
    /// the first.
    #[must_use]
    pub fn id(mut self, id: TaskId) -> Self {
        self.id = Some(id);
        self
    }

    /// Adds a header, which is stored with the task and passed to its handler.
    #[must_use]
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.insert(name.into(), value.into());
        self
    }

    /// Gives the task up after this many attempts, whatever the policy of its kind says; at least 1.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Replaces: if a task is already scheduled under the same kind and key, it takes this one's time and payload.
    ///
    /// A task that is running is not changed: the answer is [`Scheduled::Running`](crate::Scheduled::Running), nothing was
    /// scheduled, and the caller schedules once more when that attempt is over.
    #[must_use]
    pub fn replace(mut self) -> Self {
        self.replace = true;
        self
    }
}
