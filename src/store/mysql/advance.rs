//! Steps of rows that are locked.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::store::sql::{Before, Changed};
use crate::store::transition::Transition;
use crate::store::{Noted, Step};
use crate::{Task, TaskId, Timestamp};

/// What came of steps: of each, in the order given, whether it was taken; and the rows that are to be written.
#[derive(Debug, Default)]
pub(super) struct Advanced {
    pub(super) taken: Vec<bool>,
    /// Those of which only version, hops and `wake_at` are new: not every index has to change for them.
    pub(super) hopped: Vec<Changed>,
    pub(super) ended: Vec<Changed>,
    /// What is noted of them.
    pub(super) noted: Vec<(TaskId, Noted)>,
}

/// Takes steps of rows.
pub(super) fn advance(rows: Vec<Task>, steps: &[Step], now: Timestamp, history: Duration) -> Advanced {
    let read = rows
        .into_iter()
        .map(|row| (row.id, (Before::of(&row), row, false, Noted::default())));
    let mut rows: BTreeMap<_, _> = read.collect();
    let take = |step: &Step| {
        let is_so = |row: &Task| (row.state, row.version) == (step.event.needs(), step.version);
        let Some((_, row, has_ended, noted)) = rows.get_mut(&step.id).filter(|(_, row, ..)| is_so(row))
        else {
            return false;
        };
        let transition = Transition::of(&step.event, history);
        *has_ended |= !transition.hop;
        let before = row.due_at;
        transition.apply(row, now);
        noted.add(&step.note, row, now, Some(before));
        true
    };
    let mut advanced = Advanced {
        taken: steps.iter().map(take).collect(),
        ..Advanced::default()
    };
    for (before, row, has_ended, noted) in rows.into_values() {
        if !noted.is_empty() {
            advanced.noted.push((row.id, noted));
        }
        match has_ended {
            true => advanced.ended.push((before, row)),
            false if row.version != before.version => advanced.hopped.push((before, row)),
            false => {}
        }
    }
    advanced
}
