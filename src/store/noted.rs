//! What is noted of what happens to a row.

use serde::Deserialize;

use super::line::Line;
use crate::store::Claim;
use crate::{Kind, Task, Timestamp};

/// Which transitions of rows are noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum History {
    /// None.
    #[default]
    Off,
    /// All but hops, claims, and the end of a task that is done.
    Changes,
    /// All.
    All,
}

/// What is noted of a transition, in the transaction of the transition itself: nothing by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// What happened, for the row's history: without a line break.
    pub event: Option<String>,
}

impl Note {
    /// What is kept of a transition where `history` keeps at least `from`, and of the wake-up that follows from it.
    pub(crate) fn kept<'l>(
        history: History,
        from: History,
        wake: Option<String>,
        line: impl FnOnce() -> Line<'l>,
    ) -> Self {
        let is_kept = history > History::Off && history >= from;
        let line = || {
            let wake = wake.map(Into::into);
            Line { wake, ..line() }.text()
        };
        let event = is_kept.then(line);
        Note { event }
    }
}

/// What has been noted of a row. It is gone with the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// A line for each transition that had an [event](Note::event), the oldest first. A line begins with its line break,
    /// and has five fields with a blank between them: the version after it; when it was; when the row was due before it
    /// (`-`: it was not there); when it was due after it; and the event. Times are in ms since 1970 (UTC). Only the last
    /// [`LIMIT`](Self::LIMIT) characters or bytes are kept.
    pub history: String,
}

impl Noted {
    /// How long the history of a row is at the most. What is older is cut off, wherever that is in a line.
    pub const LIMIT: usize = 16 << 10;

    /// Adds what is noted of a transition: the row as it is after it, and when it was due before it.
    pub(crate) fn add(&mut self, note: &Note, row: &Task, at: Timestamp, due_before: Option<Timestamp>) {
        let Some(event) = &note.event else {
            return;
        };
        let before = due_before.map_or_else(|| "-".to_owned(), |due| due.as_millis().to_string());
        self.history += &format!(
            "\n{} {} {before} {} {event}",
            row.version,
            at.as_millis(),
            row.due_at.as_millis()
        );
        self.cut();
    }

    /// Adds what was noted later: what a [`Table`](super::table::Table) does with [`Write::noted`](super::table::Write::noted).
    pub fn append(&mut self, later: &Self) {
        self.history += &later.history;
        self.cut();
    }

    fn cut(&mut self) {
        if let Some(over) = self.history.len().checked_sub(Self::LIMIT) {
            self.history.drain(..self.history.ceil_char_boundary(over));
        }
    }
}

impl Note {
    /// The end of a lease, where that is found by the way of what `self` is noted of.
    pub(super) fn expired(&self) -> Self {
        let event = self.event.as_ref().map(|_| Line::EXPIRED.to_owned());
        Self { event }
    }
}

impl Claim {
    /// What is noted of each row that is claimed, of whichever kind.
    pub(super) fn claimed(&self) -> Option<String> {
        let mut kinds = self.room.iter().filter(|(_, room)| **room > 0);
        let is_noted = kinds.any(|(kind, _)| self.history.of(kind) == History::All);
        is_noted.then(|| Line::claimed(&self.owner))
    }

    /// What is noted of each lease of a kind that has ended.
    pub(super) fn expired(&self, kind: &Kind) -> Note {
        let is_noted = self.history.of(kind) > History::Off;
        let event = is_noted.then(|| Line::EXPIRED.to_owned());
        Note { event }
    }
}
