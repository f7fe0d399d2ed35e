//! Says when a task is due.

use std::time::{Duration, SystemTime};

use super::timestamp::millis;
use crate::{Error, Timestamp};

/// A due time: relative to now, or absolute. There is no third, so a store may match both.
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

impl When {
    /// Refuses a time that rows cannot hold.
    pub(crate) fn check(self) -> Result<(), Error> {
        let (fits, value) = match self {
            Self::After(delay) => (
                millis(delay) <= Timestamp::MAX.as_millis(),
                format!("after {delay:?}"),
            ),
            Self::At(time) => (time <= Timestamp::MAX, time.to_string()),
        };
        if fits {
            return Ok(());
        }
        Err(Error::invalid(
            "due time",
            value,
            format!(
                "allowed are times up to {}, the last that can be written down",
                Timestamp::MAX
            ),
        ))
    }
}
