//! Steps of rows that are locked.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::sql::Changed;
use crate::store::transition::Transition;
use crate::store::{Ending, Event, Noted, Step};
use crate::{Task, TaskId, Timestamp};

/// What came of steps: of each, in the order given, whether it was taken; and the rows that are to be written.
#[derive(Debug, Default)]
pub(super) struct Advanced {
    pub(super) taken: Vec<bool>,
    /// Those of which only version, hops and `wake_at` are new: not every index has to change for them.
    pub(super) hopped: Vec<Changed>,
    pub(super) ended: Vec<Changed>,
    /// Those of which only that they are done is new, which is the same of each.
    pub(super) done: Vec<TaskId>,
    /// What is noted of them.
    pub(super) noted: Vec<(TaskId, Noted)>,
}

/// What has become of a row.
#[derive(Default)]
struct How {
    has_ended: bool,
    /// Whether the last step was [`DONE`].
    is_done: bool,
}

/// How nearly all claims end.
const DONE: Event = Event::End {
    ending: Ending::Done,
    goes_on: false,
};

/// Takes steps of rows.
pub(super) fn advance(rows: Vec<Task>, steps: &[Step], now: Timestamp, history: Duration) -> Advanced {
    let read = rows
        .into_iter()
        .map(|row| (row.id, (row.version, row, How::default(), Noted::default())));
    let mut rows: BTreeMap<_, _> = read.collect();
    let take = |step: &Step| {
        let is_so = |row: &Task| (row.state, row.version) == (step.event.needs(), step.version);
        let Some((_, row, how, noted)) = rows.get_mut(&step.id).filter(|(_, row, ..)| is_so(row)) else {
            return false;
        };
        let transition = Transition::of(&step.event, history);
        how.has_ended |= !transition.hop;
        // Anything else that happens to it as well is of another version.
        how.is_done = transition == Transition::of(&DONE, history);
        let before = row.due_at;
        transition.apply(row, now);
        noted.add(&step.note, row, now, Some(before));
        true
    };
    let mut advanced = Advanced {
        taken: steps.iter().map(take).collect(),
        ..Advanced::default()
    };
    for (read_at, row, how, noted) in rows.into_values() {
        if !noted.is_empty() {
            advanced.noted.push((row.id, noted));
        }
        match how.has_ended {
            true if how.is_done && row.version == read_at + 1 => advanced.done.push(row.id),
            true => advanced.ended.push((read_at, row)),
            false if row.version != read_at => advanced.hopped.push((read_at, row)),
            false => {}
        }
    }
    advanced
}
