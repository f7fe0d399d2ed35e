//! What has happened to a task, in rows of a table.

use delayline::Timestamp;
use delayline::history::{Entry, Leg};

use super::words::{Moment, lasted};

/// One thing that has happened to a task.
#[derive(Debug)]
pub(super) struct Happened {
    pub(super) at: Moment,
    /// What it was, such as `moved`.
    pub(super) event: String,
    pub(super) by: String,
    pub(super) why: String,
    /// When it was due from then on, if that was another time than before.
    pub(super) due: Option<Moment>,
    /// How its wake-up went on.
    pub(super) wake: String,
}

/// The latest first.
pub(super) fn timeline(history: Vec<Entry>, now: Timestamp) -> Vec<Happened> {
    let happened = |entry: Entry| Happened {
        at: Moment::of(entry.at, now),
        event: match entry.attempt {
            Some(attempt) => format!("{}, attempt {attempt}", entry.event.replace('_', " ")),
            None => entry.event.replace('_', " "),
        },
        by: entry.actor.unwrap_or_default(),
        why: entry.reason.unwrap_or_default(),
        due: (entry.due_before != Some(entry.due_at)).then(|| Moment::of(entry.due_at, now)),
        wake: entry.wake.map(|leg| way(&leg)).unwrap_or_default(),
    };
    history.into_iter().rev().map(happened).collect()
}

fn way(leg: &Leg) -> String {
    let delay = lasted(leg.delay);
    match leg.level {
        Some(level) => format!("{delay} by level {level} of {}", leg.backend),
        None => format!("{delay} by {}", leg.backend),
    }
}
