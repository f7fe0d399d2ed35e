//! Defines the task: the row that decides.

pub(crate) mod answer;
pub(crate) mod claim_id;
pub mod defaults;
pub(crate) mod due_wake;
pub(crate) mod edit;
pub(crate) mod error;
pub(crate) mod failure;
pub(crate) mod new_task;
pub(crate) mod page;
pub(crate) mod shift;
pub(crate) mod target;
pub(crate) mod timestamp;
pub(crate) mod wake;
pub(crate) mod when;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Error, Timestamp};

/// The permanent name of one task: a UUID, version 7 unless the caller supplied another.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskId(Uuid);

impl TaskId {
    /// Makes the id of these 16 bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(Uuid::from_bytes(bytes))
    }

    /// Returns the 16 bytes of the id. Of ids that a scheduler made (UUIDs of version 7), their order is the order in which
    /// they were made, to the millisecond.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        self.0.as_bytes()
    }
}

impl From<Uuid> for TaskId {
    fn from(uuid: Uuid) -> Self {
        Self(uuid)
    }
}

impl fmt::Display for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for TaskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for TaskId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        Uuid::try_parse(text)
            .map(Self)
            .map_err(|_| Error::invalid("task id", text, "allowed is a UUID"))
    }
}

/// Binds a task to its handler: a stable name such as `order.cancel`, 1 to 100 bytes.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Kind(Arc<str>);

/// The caller's own name for a task, such as an order id: 1 to 255 bytes, unique per kind while the task is live.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Key(Arc<str>);

macro_rules! name {
    ($name:ident, $field:literal, $longest:literal) => {
        impl $name {
            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }

            /// Refuses a name that is empty, too long or has a control character, or one that overrides the direction of
            /// the text around it.
            pub fn check(&self) -> Result<(), Error> {
                let fits = (1..=$longest).contains(&self.0.len());
                if fits && !self.0.chars().any(is_hidden) {
                    return Ok(());
                }
                Err(Error::invalid(
                    $field,
                    &self.0,
                    concat!(
                        "allowed are 1 to ",
                        $longest,
                        " bytes without control characters and bidirectional overrides"
                    ),
                ))
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

/// Says whether a character is not shown, and changes how others are: a log or a page would show another name.
pub(crate) fn is_hidden(character: char) -> bool {
    character.is_control() || matches!(character, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

name!(Kind, "kind", 100);
name!(Key, "key", 255);

/// The state of a task. All transitions are in `DESIGN.md`.
///
/// There are no others: a `match` needs no other case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It waits for its due time, or for a free worker.
    Scheduled,
    /// A worker has claimed it and holds its lease.
    Running,
    /// Its handler finished it.
    Done,
    /// It was given up, and waits for an operator to redrive or dismiss it.
    Dead,
    /// Its caller or a check cancelled it before it ran, or an operator dismissed it when it was dead.
    Cancelled,
}

impl State {
    /// Lists every state.
    pub const ALL: [Self; 5] = [
        Self::Scheduled,
        Self::Running,
        Self::Done,
        Self::Dead,
        Self::Cancelled,
    ];

    /// Says whether the task may still run by itself: scheduled or running.
    pub const fn is_live(self) -> bool {
        matches!(self, Self::Scheduled | Self::Running)
    }
}

/// A task as its row has it.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::store::MemoryStore;
/// use delayline::{NewTask, Scheduler, State};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// scheduler.schedule(NewTask::new("post.publish", &7).key("post-7").after(Duration::from_secs(60))).await?;
///
/// let task = scheduler.find(("post.publish", "post-7")).await?.expect("it was scheduled");
/// assert_eq!((task.state, task.attempt), (State::Scheduled, 0));
/// assert_eq!(task.payload, b"7");
/// println!("{} of {} is due at {}", task.id, task.kind, task.due_at);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Task {
    /// The permanent name of the task.
    pub id: TaskId,
    /// Which handler it is for.
    pub kind: Kind,
    /// The caller's own name for it.
    pub key: Option<Key>,
    /// What its handler gets: JSON unless the caller gave bytes of its own.
    pub payload: Vec<u8>,
    /// Data beside the payload, such as a trace context.
    pub headers: BTreeMap<String, String>,
    /// When it may run, not before; a retry or a snooze moves it.
    pub due_at: Timestamp,
    /// When its caller wanted it to run: the due time before any retry or snooze; if that had passed already, the time
    /// of the call. Deadlines count from here.
    pub planned_at: Timestamp,
    /// Where it is in its life.
    pub state: State,
    /// The fencing token: one more at every transition, so that a write with an older version comes too late.
    pub version: u64,
    /// When the row must be read next, whatever its state; none for a dead task that stays
    /// until it is redriven or dismissed.
    pub wake_at: Option<Timestamp>,
    /// How many attempts have begun since it was scheduled, a claim being one. A snooze or a graceful release gives one
    /// back, and so does the end of the lease of a claim that has not [started](Self::started).
    pub attempt: u32,
    /// Whether its worker has recorded that its handler starts.
    pub started: bool,
    /// How many claims in a row have ended because no worker renewed or settled them.
    pub stalls: u32,
    /// After how many attempts it is given up; none: the policy of its kind decides.
    pub max_attempts: Option<u32>,
    /// How many hops its wake-up has taken; informational.
    pub hop: u32,
    /// Which worker holds, or last held, its lease; informational.
    pub owner: Option<String>,
    /// Why its last attempt failed.
    pub last_error: Option<String>,
    /// When its row was written.
    pub created_at: Timestamp,
    /// When its row last changed state, time or payload.
    pub updated_at: Timestamp,
    /// When it became done, dead or cancelled.
    pub finished_at: Option<Timestamp>,
}

impl Task {
    /// Makes a scheduled row of this id and kind, otherwise empty: a [`Table`](crate::store::table::Table) of your own
    /// sets the fields to what it has read.
    pub fn blank(id: TaskId, kind: Kind) -> Self {
        let never = Timestamp::default();
        Self {
            id,
            kind,
            key: None,
            payload: Vec::new(),
            headers: BTreeMap::new(),
            due_at: never,
            planned_at: never,
            state: State::Scheduled,
            version: 0,
            wake_at: None,
            attempt: 0,
            started: false,
            stalls: 0,
            max_attempts: None,
            hop: 0,
            owner: None,
            last_error: None,
            created_at: never,
            updated_at: never,
            finished_at: None,
        }
    }

    /// Says whether its last attempt failed, or was put off for a reason, and the next is to come or running.
    pub fn is_failing(&self) -> bool {
        self.state.is_live() && self.last_error.is_some()
    }

    /// Returns since when it is late, as long as it has not ended: since its due time; and where attempts fail, since
    /// the time that its caller wanted, as each retry moves the due time.
    pub fn late_since(&self) -> Timestamp {
        match self.is_failing() {
            true => self.planned_at,
            false => self.due_at,
        }
    }
}
