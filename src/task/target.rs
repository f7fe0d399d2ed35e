//! Names a task to change, its expected state, and the action.

use super::shift::Shift;
use super::when::When;
use crate::{Error, Key, Kind, Task, TaskId, Timestamp};

/// Names a task: by its id, or by its kind and key. A store has to know both, and there is no third.
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
    /// The live task of this kind and key, or else the one that was made last.
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
    /// Returns the kind, if the target names it.
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

/// The condition under which a change applies.
///
/// Every hop on the way makes a new version too: a caller that cares about the time only expects a due time. A store
/// has to know all of them.
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

/// An action on an existing task: see [`Scheduler::change_each`](crate::Scheduler::change_each).
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
    /// Schedule it again, due now, if it is dead.
    Redrive,
    /// Give it up for good if it is dead.
    Dismiss,
}

impl Action {
    /// Names the verb of the scheduler that does it.
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
    /// Says whether `task` meets the condition.
    pub fn holds(self, task: &Task) -> bool {
        match self {
            Self::Anything => true,
            Self::Version(version) => task.version == version,
            Self::Due(due) => task.due_at == due,
        }
    }
}
