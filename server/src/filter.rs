//! Which tasks are meant: those of a state, of one kind or of several, that are as all else says.

mod walk;

use delayline::{Error, Kind, Scheduler, State, Task, TaskId, Timestamp};

use self::walk::Walk;

/// Which tasks.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) state: State,
    pub(crate) due_after: Option<Timestamp>,
    pub(crate) due_before: Option<Timestamp>,
    pub(crate) key_prefix: Option<String>,
    /// What the error of the last attempt has in it.
    pub(crate) error: Option<String>,
}

/// Where a task is in the order of lists, which is one for all kinds: its due time and its id.
pub(crate) type Position = (Timestamp, TaskId);

fn position(task: &Task) -> Position {
    (task.due_at, task.id)
}

/// How many tasks are read at once where many are changed.
pub(crate) const PAGE: usize = 100;

/// How much there may be of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How many tasks it has.
    pub(crate) tasks: usize,
    /// How many are looked at for it.
    pub(crate) looks: usize,
    /// After so many bytes of payloads it ends.
    pub(crate) bytes: usize,
    /// How many tasks are read at once, beside one of each kind.
    pub(crate) read: usize,
}

impl Filter {
    /// The tasks that match, by due time and id, `most` at the most. By the index of kinds, states and due times; all else is
    /// looked at row by row.
    pub(crate) async fn find<T: From<Task>>(
        &self,
        scheduler: &Scheduler,
        most: usize,
    ) -> Result<Vec<T>, Error> {
        let bounds = Bounds {
            tasks: most,
            looks: usize::MAX,
            bytes: usize::MAX,
            read: PAGE,
        };
        let (found, _) = self.page(scheduler, None, bounds).await?;
        Ok(found)
    }

    /// The same after a position, within bounds; and the position after which it goes on, if there is something to look at.
    pub(crate) async fn page<T: From<Task>>(
        &self,
        scheduler: &Scheduler,
        mut after: Option<Position>,
        bounds: Bounds,
    ) -> Result<(Vec<T>, Option<Position>), Error> {
        let mut walk = Walk::begin(scheduler, self, after);
        let mut found = Vec::new();
        let (mut looked, mut bytes) = (0, 0);
        loop {
            // One more, to know whether it goes on.
            let wanted = match self.looks_at_rows() {
                true => bounds.read,
                false => bounds.read.min(bounds.tasks - found.len() + 1),
            };
            let Some(task) = walk.next(wanted).await? else {
                return Ok((found, None));
            };
            if found.len() == bounds.tasks || looked == bounds.looks || bytes >= bounds.bytes {
                return Ok((found, after));
            }
            looked += 1;
            after = Some(position(&task));
            if self.matches(&task) {
                bytes += task.payload.len();
                found.push(T::from(task));
            }
        }
    }

    fn looks_at_rows(&self) -> bool {
        self.key_prefix.is_some() || self.error.is_some()
    }

    fn matches(&self, task: &Task) -> bool {
        let has_prefix = |prefix: &String| {
            task.key
                .as_ref()
                .is_some_and(|key| key.as_str().starts_with(prefix))
        };
        let has_error = |part: &String| task.last_error.as_ref().is_some_and(|error| error.contains(part));
        self.key_prefix.as_ref().is_none_or(has_prefix) && self.error.as_ref().is_none_or(has_error)
    }
}
