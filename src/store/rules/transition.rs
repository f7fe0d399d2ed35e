//! Computes what a hop, the end of a claim or a verb makes of a row, and what a new row is.

use std::time::Duration;

use crate::store::keep::Stay;
use crate::store::{Ending, Event, NewRow, Verb, When};
use crate::{State, Task, Timestamp};

/// A transition of a row, the same for every store: its columns, apart from the version, which goes up by one.
///
/// Always clears `started`: no handler has started in the new state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::store) struct Transition<'e> {
    /// What the row becomes.
    pub(in crate::store) state: State,
    /// The new due time, with which earlier stalls are forgotten; else as before.
    pub(in crate::store) due: Option<When>,
    /// When to look next, from now; never, for a dead row that stays until an operator acts.
    pub(in crate::store) overdue_after: Option<Duration>,
    /// As if it had just been scheduled.
    pub(in crate::store) anew: bool,
    /// One hop more, and not an update to its caller.
    pub(in crate::store) hop: bool,
    /// How many attempts do not count, and are given back.
    pub(in crate::store) given_back: u8,
    /// Why, for `last_error`; else as before.
    pub(in crate::store) error: Option<&'e str>,
}

/// What the end of a claim makes of its task, for people: the store does it by itself.
pub(crate) fn ended(claimed: &Task, ending: &Ending, now: Timestamp) -> Task {
    let mut task = claimed.clone();
    let stay = Stay {
        ended: Duration::ZERO,
        dead: None,
    };
    Transition::by_ending(ending, stay).apply(&mut task, now);
    task
}

impl<'e> Transition<'e> {
    /// By what happens to a row that a worker holds or sends on its way.
    pub(in crate::store) fn of(event: &'e Event, stay: Stay) -> Self {
        match event {
            Event::Hop { overdue_after } => Self {
                hop: true,
                ..Self::to(State::Scheduled, *overdue_after)
            },
            Event::End { ending } => Self::by_ending(ending, stay),
        }
    }

    fn by_ending(ending: &'e Ending, stay: Stay) -> Self {
        let later = |after, overdue_after| Self {
            due: Some(When::After(after)),
            ..Self::to(State::Scheduled, overdue_after)
        };
        match *ending {
            Ending::Done => Self::to(State::Done, stay.ended),
            Ending::Dead { ref error, give_back } => Self {
                given_back: u8::from(give_back),
                error: Some(error),
                ..Self::to(State::Dead, stay.dead)
            },
            Ending::Retry {
                after,
                overdue_after,
                ref error,
            } => Self {
                error: Some(error),
                ..later(after, overdue_after)
            },
            Ending::Snooze {
                after,
                overdue_after,
                ref reason,
            } => Self {
                given_back: 1,
                error: reason.as_deref(),
                ..later(after, overdue_after)
            },
            Ending::Again { after, overdue_after } => Self::anew(When::After(after), overdue_after),
            Ending::Release => Self {
                given_back: 1,
                ..Self::to(State::Scheduled, Duration::ZERO)
            },
            Ending::Moved { due, overdue_after } => Self::anew(When::At(due), overdue_after),
            Ending::Cancelled => Self {
                given_back: 1,
                ..Self::to(State::Cancelled, stay.ended)
            },
        }
    }

    /// By a verb that a caller may use on the row as it is.
    pub(in crate::store) fn by(verb: &Verb, stay: Stay) -> Self {
        match *verb {
            Verb::Reschedule { due, overdue_after } => Self::anew(due, overdue_after),
            Verb::RunNow { overdue_after } | Verb::Redrive { overdue_after } => {
                Self::anew(When::After(Duration::ZERO), overdue_after)
            }
            Verb::Edit {
                due: Some(due),
                overdue_after,
                ..
            } => Self::anew(due, overdue_after),
            Verb::Edit { overdue_after, .. } => Self::to(State::Scheduled, overdue_after),
            Verb::Cancel | Verb::Dismiss => Self::to(State::Cancelled, stay.ended),
        }
    }

    /// To be as if it had just been scheduled.
    pub(in crate::store) fn anew(due: When, overdue_after: Duration) -> Self {
        Self {
            due: Some(due),
            anew: true,
            ..Self::to(State::Scheduled, overdue_after)
        }
    }

    fn to(state: State, overdue_after: impl Into<Option<Duration>>) -> Self {
        Self {
            state,
            due: None,
            overdue_after: overdue_after.into(),
            anew: false,
            hop: false,
            given_back: 0,
            error: None,
        }
    }

    /// Makes it of a row.
    pub(in crate::store) fn apply(self, row: &mut Task, now: Timestamp) {
        let updated_at = if self.hop { row.updated_at } else { now };
        enter(row, self.state, updated_at);
        row.wake_at = self.overdue_after.map(|overdue_after| now.after(overdue_after));
        row.started = false;
        row.hop = row.hop.saturating_add(u32::from(self.hop));
        row.attempt = row.attempt.saturating_sub(u32::from(self.given_back));
        if let Some(due) = self.due {
            row.due_at = due_at(due, now);
            row.stalls = 0;
        }
        if let Some(error) = self.error {
            row.last_error = Some(error.to_owned());
        }
        if self.anew {
            row.planned_at = row.due_at.max(now);
            (row.attempt, row.hop, row.last_error) = (0, 0, None);
        }
        row.finished_at = (!self.state.is_live()).then_some(now);
    }
}

/// A new row, scheduled.
pub(in crate::store) fn new(new: NewRow, now: Timestamp) -> Task {
    let due_at = due_at(new.due, now);
    Task {
        id: new.id,
        kind: new.kind,
        key: new.key,
        payload: new.payload,
        headers: new.headers,
        due_at,
        planned_at: due_at.max(now),
        state: State::Scheduled,
        version: 1,
        wake_at: Some(now.after(new.overdue_after)),
        attempt: 0,
        started: false,
        stalls: 0,
        max_attempts: new.max_attempts,
        hop: 0,
        owner: None,
        last_error: None,
        created_at: now,
        updated_at: now,
        finished_at: None,
    }
}

fn due_at(due: When, now: Timestamp) -> Timestamp {
    match due {
        When::After(delay) => now.after(delay),
        When::At(time) => time,
    }
}

/// One transition, into a state or to something new within it.
pub(super) fn enter(row: &mut Task, state: State, now: Timestamp) {
    row.state = state;
    row.version += 1;
    row.updated_at = now;
}
