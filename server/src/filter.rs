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

/// How many tasks of a kind are read at once.
const PAGE: usize = 500;

impl Filter {
    /// The tasks that match, by due time and id, `most` at the most. By the index of kinds, states and due times; all else is
    /// looked at row by row.
    pub(crate) async fn find<T: From<Task>>(
        &self,
        scheduler: &Scheduler,
        most: usize,
    ) -> Result<Vec<T>, Error> {
        let (found, _) = self.page(scheduler, None, most, usize::MAX).await?;
        Ok(found)
    }

    /// The same after a position, of which no more than `looks` are looked at; and the position after which it goes on, if
    /// there is something to look at.
    pub(crate) async fn page<T: From<Task>>(
        &self,
        scheduler: &Scheduler,
        mut after: Option<Position>,
        most: usize,
        looks: usize,
    ) -> Result<(Vec<T>, Option<Position>), Error> {
        let mut walk = Walk::begin(scheduler, self, after);
        let mut found = Vec::new();
        let mut looked = 0;
        loop {
            // One more, to know whether it goes on.
            let wanted = match self.looks_at_rows() {
                true => PAGE,
                false => most - found.len() + 1,
            };
            let Some(task) = walk.next(wanted).await? else {
                return Ok((found, None));
            };
            if found.len() == most || looked == looks {
                return Ok((found, after));
            }
            looked += 1;
            after = Some(position(&task));
            if self.matches(&task) {
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
