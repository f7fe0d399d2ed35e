//! Describes what is changed of a task that waits.

use std::time::Duration;

use serde::Serialize;

use super::when::When;
use crate::Timestamp;

/// What is changed of a task that waits: its payload, and with [`after`](Self::after) or [`at`](Self::at) its time as well;
/// all else stays as it is. See [`Scheduler::edit`](crate::Scheduler::edit).
///
/// ```
/// use std::time::Duration;
///
/// use delayline::store::MemoryStore;
/// use delayline::{Edit, NewTask, Scheduler};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// let reminder = NewTask::new("mail.remind", "ada@example.org").key("7").after(Duration::from_secs(900));
/// let due = scheduler.schedule(reminder).await?.task().due_at;
///
/// let answer = scheduler.edit(("mail.remind", "7"), Edit::payload("ada@example.com")).await?;
/// let task = answer.task().expect("it waits");
/// assert_eq!((task.payload.as_slice(), task.due_at), (br#""ada@example.com""#.as_slice(), due));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Edit {
    pub(crate) payload: Result<Vec<u8>, serde_json::Error>,
    pub(crate) due: Option<When>,
}

impl Edit {
    /// Another payload, as JSON. One that cannot be encoded is reported when the task is changed.
    pub fn payload(payload: &(impl Serialize + ?Sized)) -> Self {
        Self {
            payload: serde_json::to_vec(payload),
            due: None,
        }
    }

    /// Another payload, which the handler is given as it is.
    pub fn payload_bytes(payload: impl Into<Vec<u8>>) -> Self {
        Self {
            payload: Ok(payload.into()),
            due: None,
        }
    }

    /// Also makes the task due `delay` from now, by the store's clock.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.due = Some(When::After(delay));
        self
    }

    /// Also makes the task due at `time`.
    #[must_use]
    pub fn at(mut self, time: impl Into<Timestamp>) -> Self {
        self.due = Some(When::At(time.into()));
        self
    }
}
