//! Which tasks are meant: those of a state, of one kind or of several, that are as all else says.

mod walk;

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use delayline::{Error, Kind, Scheduler, State, Task, TaskId, Timestamp};

use super::state_name;

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

/// The place of a task in the order of lists, which is one for all kinds: by due time and id.
///
/// Its text is the cursor of the next page, and names a task in a form as it was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Position {
    pub(crate) due_at: Timestamp,
    pub(crate) id: TaskId,
}

impl Position {
    /// As the library's pages have it.
    fn pair(self) -> (Timestamp, TaskId) {
        (self.due_at, self.id)
    }
}

impl From<&Task> for Position {
    fn from(task: &Task) -> Self {
        Self {
            due_at: task.due_at,
            id: task.id,
        }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{}.{}", self.due_at.as_millis(), self.id);
        f.write_str(&URL_SAFE_NO_PAD.encode(text))
    }
}

impl FromStr for Position {
    type Err = Error;

    fn from_str(cursor: &str) -> Result<Self, Error> {
        let position = || {
            let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
            let (due_at, id) = text.split_once('.')?;
            Some(Self {
                due_at: Timestamp::from_millis(due_at.parse().ok()?),
                id: id.parse().ok()?,
            })
        };
        position().ok_or_else(|| Error::Invalid {
            field: "cursor",
            value: cursor.to_owned(),
            allowed: "allowed is the cursor of the page before, as it was given".to_owned(),
        })
    }
}

/// How many tasks are read at once where many are changed.
pub(super) const PAGE: usize = 100;

/// How many bytes a task has at the most without payload and headers, as stores keep so much of an error.
pub(crate) const LEAN: usize = 256 << 10;

/// Of how many kinds a list may be that names none.
pub(crate) const KINDS: usize = 100;

/// How much there may be of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// How many tasks it has.
    pub(crate) tasks: usize,
    /// How many are looked at for it.
    pub(crate) looks: usize,
    /// After so many bytes of payloads it ends; none: tasks are read without payload and headers.
    pub(crate) payloads: Option<usize>,
    /// How many tasks wait at the most when they are read, beside one of each kind, or some short ones without payload.
    pub(crate) read: usize,
}

impl Bounds {
    /// Bounds for tasks that are changed or counted: how many, and how many are read for it.
    pub(crate) fn of_many(tasks: usize, looks: usize) -> Self {
        Self {
            tasks,
            looks,
            payloads: None,
            read: PAGE,
        }
    }
}

impl fmt::Display for Filter {
    /// In words, as `kind order.cancel, scheduled, due before …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.kinds.iter().map(Kind::as_str).collect();
        write!(f, "kind {}, ", kinds.join(", "))?;
        f.write_str(state_name(self.state))?;
        if let Some(time) = self.due_after {
            write!(f, ", due at {time} or later")?;
        }
        if let Some(time) = self.due_before {
            write!(f, ", due before {time}")?;
        }
        if let Some(prefix) = &self.key_prefix {
            write!(f, ", with a key that begins with {prefix:?}")?;
        }
        if let Some(error) = &self.error {
            write!(f, ", with {error:?} in the last error")?;
        }
        Ok(())
    }
}

impl Filter {
    /// The tasks that match, by due time and id, after a position and within bounds; and the position after which it goes on,
    /// if there may be more. By the index of kinds, states and due times; all else is compared row by row.
    pub(super) async fn page<T: From<Task>>(
        &self,
        scheduler: &Scheduler,
        mut after: Option<Position>,
        bounds: Bounds,
    ) -> Result<(Vec<T>, Option<Position>), Error> {
        let mut walk = Walk::begin(scheduler, self, after, bounds.payloads.is_some());
        let mut found = Vec::new();
        let (mut looked, mut bytes) = (0, 0);
        loop {
            // One more, to know whether it goes on.
            let wanted = match self.looks_at_rows() {
                true => bounds.read,
                false => bounds.read.min((bounds.tasks - found.len()).saturating_add(1)),
            };
            let Some(task) = walk.next(wanted).await? else {
                return Ok((found, None));
            };
            let is_full = bounds.payloads.is_some_and(|most| bytes >= most);
            if found.len() == bounds.tasks || looked == bounds.looks || is_full {
                return Ok((found, after));
            }
            looked += 1;
            after = Some(Position::from(&task));
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
