//! Decides whether a caller may insert a row or change one, and what the answer is.

use super::lease::{expire, lease_has_ended};
use super::transition::{Transition, new};
use crate::store::keep::Stays;
use crate::store::rows::Rows;
use crate::store::{Change, NewRow, Note, Verb};
use crate::{Answer, Scheduled, State, Task, TaskId, Timestamp};

impl Rows {
    /// Inserts a row, unless there is one of its id or a live one of its key.
    pub(in crate::store) fn insert(&mut self, row: NewRow, now: Timestamp) -> Scheduled {
        if let Some(row) = self.get(row.id) {
            return Scheduled::Existing(row.clone());
        }
        let live = row.key.as_ref().and_then(|key| self.live(&row.kind, key));
        let live = live.map(|live| live.id);
        if let Some(id) = live {
            self.end_lease(id, now, &row.note);
        }
        if let Some(live) = live.and_then(|id| self.get(id)) {
            if live.state == State::Running {
                return Scheduled::Running(live.clone());
            }
            if !row.replace {
                return Scheduled::Existing(live.clone());
            }
            let mut live = live.clone();
            live.payload = row.payload;
            live.headers = row.headers;
            live.max_attempts = row.max_attempts;
            Transition::anew(row.due, row.overdue_after).apply(&mut live, now);
            self.enter(live.id, now, &row.note, |old| *old = live.clone());
            return Scheduled::Replaced(live);
        }
        let note = row.note.clone();
        let row = new(row, now);
        self.add(row.clone());
        self.note(row.id, now, &note, None);
        Scheduled::New(row)
    }

    /// Changes a row as its caller wants, unless that is refused.
    pub(in crate::store) fn apply(&mut self, change: &Change, now: Timestamp, stays: &Stays) -> Answer {
        let Some(id) = self.find(&change.target).map(|row| row.id) else {
            return Answer::NotFound;
        };
        self.end_lease(id, now, &change.note);
        let Some(row) = self.get(id) else {
            return Answer::NotFound;
        };
        if let Some(refused) = refusal(row, change) {
            return refused;
        }
        if let Verb::Redrive { .. } = change.verb
            && let Some(other) = row.key.as_ref().and_then(|key| self.live(&row.kind, key))
        {
            return Answer::Conflict(other.clone());
        }
        let transition = Transition::by(&change.verb, stays.of(&row.kind));
        let make = |row: &mut Task| {
            if let Verb::Edit { payload, .. } = &change.verb {
                row.payload.clone_from(payload);
            }
            transition.apply(row, now);
        };
        self.enter(id, now, &change.note, make)
            .map_or(Answer::NotFound, |row| Answer::Done(row.clone()))
    }

    /// Ends the lease of a row that a caller means, if its time is over. It is noted if what the caller does is.
    fn end_lease(&mut self, id: TaskId, now: Timestamp, note: &Note) {
        if self.get(id).is_some_and(|row| lease_has_ended(row, now)) {
            self.enter(id, now, &note.expired(), |row| expire(row, now));
        }
    }
}

/// The answer where a verb may not change a row: its state answers before the expectation of the caller.
fn refusal(row: &Task, change: &Change) -> Option<Answer> {
    let is_of_dead = matches!(change.verb, Verb::Redrive { .. } | Verb::Dismiss);
    let answer: fn(Task) -> Answer = match row.state {
        State::Scheduled | State::Running if is_of_dead => Answer::Conflict,
        State::Running => Answer::TooLate,
        State::Done | State::Cancelled => Answer::Finished,
        State::Dead if !is_of_dead => Answer::Finished,
        State::Scheduled | State::Dead if !change.expect.holds(row) => Answer::Conflict,
        State::Scheduled | State::Dead => return None,
    };
    Some(answer(row.clone()))
}
