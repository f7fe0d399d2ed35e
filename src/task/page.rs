//! Selects tasks to list, a page at a time.

use crate::{Kind, State, Task, TaskId, Timestamp};

/// Selects which rows a list shows.
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
    /// The kind of the tasks.
    pub kind: Kind,
    /// The state of the tasks.
    pub state: State,
    /// Only tasks after this one, the last of the page before: its due time and id.
    pub after: Option<(Timestamp, TaskId)>,
    /// Only tasks that are due before this; a store may list others too, which
    /// [`Scheduler::list`](crate::Scheduler::list) leaves out.
    pub before: Option<Timestamp>,
    /// How many at the most.
    pub limit: usize,
    /// Whether payloads and headers are left out, and are empty.
    pub is_lean: bool,
}

impl Page {
    /// Selects the first 100 tasks of a kind and a state.
    pub fn new(kind: impl Into<Kind>, state: State) -> Self {
        Self {
            kind: kind.into(),
            state,
            after: None,
            before: None,
            limit: 100,
            is_lean: false,
        }
    }

    /// Selects only tasks that are due at this time or later.
    #[must_use]
    pub fn due_from(mut self, time: Timestamp) -> Self {
        let last_before = Timestamp::from_millis(time.as_millis().saturating_sub(1));
        self.after = Some((last_before, TaskId::from_bytes([u8::MAX; 16])));
        self
    }

    /// Selects only tasks that are due before this time.
    #[must_use]
    pub fn due_before(mut self, time: Timestamp) -> Self {
        self.before = Some(time);
        self
    }

    /// Selects the page after one that ended with `last`.
    #[must_use]
    pub fn after(mut self, last: &Task) -> Self {
        self.after = Some((last.due_at, last.id));
        self
    }

    /// Sets how many rows the page has at the most.
    #[must_use]
    pub fn limit(mut self, rows: usize) -> Self {
        self.limit = rows;
        self
    }

    /// Leaves payloads and headers out, as they may be long.
    #[must_use]
    pub fn lean(mut self) -> Self {
        self.is_lean = true;
        self
    }
}
