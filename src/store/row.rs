//! What each transition makes of one row.

use std::time::Duration;

use crate::store::{Claim, Ending, NewRow, Pending, Verb};
use crate::timestamp::duration;
use crate::{State, Task, Timestamp, Wake, When};

/// A new row, scheduled.
pub(super) fn new(new: NewRow, now: Timestamp) -> Task {
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
        wake_at: Some(now.after(new.look_in)),
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

pub(super) fn due_at(due: When, now: Timestamp) -> Timestamp {
    match due {
        When::After(delay) => now.after(delay),
        When::At(time) => time,
    }
}

pub(super) fn pending(row: &Task) -> Pending {
    Pending {
        wake: Wake {
            id: row.id,
            kind: row.kind.clone(),
            version: row.version,
        },
        key: row.key.clone(),
        due_at: row.due_at,
        planned_at: row.planned_at,
    }
}

/// One transition, into a state or to something new within it.
pub(super) fn enter(row: &mut Task, state: State, now: Timestamp) {
    row.state = state;
    row.version += 1;
    row.updated_at = now;
}

/// One transition, from scheduled to running.
pub(super) fn claim(row: &mut Task, claim: &Claim, now: Timestamp) {
    enter(row, State::Running, now);
    row.attempt += 1;
    row.owner = Some(claim.owner.to_string());
    row.wake_at = Some(now.after(claim.lease));
}

/// Whether its claim is none any more.
pub(super) fn lease_has_ended(row: &Task, now: Timestamp) -> bool {
    row.state == State::Running && row.wake_at.is_none_or(|lease_until| lease_until <= now)
}

/// One transition, back to scheduled since its lease has ended.
pub(super) fn expire(row: &mut Task, now: Timestamp) {
    enter(row, State::Scheduled, now);
    if !row.started {
        give_attempt_back(row);
    }
    row.started = false;
    row.stalls = row.stalls.saturating_add(1);
}

/// A lease that was given while the clock was ahead; no transition.
pub(super) fn mend_lease(row: &mut Task, now: Timestamp) {
    let lease = row
        .wake_at
        .map_or(0, |wake_at| wake_at.millis_since(row.updated_at));
    // One that was renewed since ends when it should.
    if lease > 0 {
        row.wake_at = Some(now.after(duration(lease)));
    }
    row.updated_at = now;
}

/// One transition, to be as if it had just been scheduled.
pub(super) fn schedule_anew(row: &mut Task, due_at: Timestamp, look_in: Duration, now: Timestamp) {
    enter(row, State::Scheduled, now);
    row.due_at = due_at;
    row.planned_at = due_at.max(now);
    row.wake_at = Some(now.after(look_in));
    row.attempt = 0;
    row.started = false;
    row.stalls = 0;
    row.hop = 0;
    row.last_error = None;
    row.finished_at = None;
}

/// One transition, by a verb that its caller may use on it as it is.
pub(super) fn apply(row: &mut Task, verb: &Verb, now: Timestamp, history: Duration) {
    match *verb {
        Verb::Reschedule { due, look_in } => schedule_anew(row, due_at(due, now), look_in, now),
        Verb::RunNow { look_in } | Verb::Redrive { look_in } => schedule_anew(row, now, look_in, now),
        Verb::Cancel | Verb::Dismiss => finish(row, State::Cancelled, Some(now.after(history)), now),
    }
}

/// One transition, the end of its claim.
pub(super) fn end(row: &mut Task, ending: Ending, now: Timestamp, history: Duration) {
    match ending {
        Ending::Done => finish(row, State::Done, Some(now.after(history)), now),
        Ending::Dead { error, give_back } => {
            finish(row, State::Dead, None, now);
            row.last_error = Some(error);
            if give_back {
                give_attempt_back(row);
            }
        }
        Ending::Retry {
            after,
            look_in,
            error,
        } => {
            schedule_later(row, after, look_in, now);
            row.last_error = Some(error);
        }
        Ending::Snooze { after, look_in } => {
            schedule_later(row, after, look_in, now);
            give_attempt_back(row);
        }
        Ending::Again { after, look_in } => schedule_anew(row, now.after(after), look_in, now),
        Ending::Release => {
            enter(row, State::Scheduled, now);
            row.wake_at = Some(now);
            give_attempt_back(row);
            row.started = false;
        }
        Ending::Moved { due, look_in } => schedule_anew(row, due, look_in, now),
        Ending::Cancelled => {
            finish(row, State::Cancelled, Some(now.after(history)), now);
            give_attempt_back(row);
        }
    }
}

fn finish(row: &mut Task, state: State, wake_at: Option<Timestamp>, now: Timestamp) {
    enter(row, state, now);
    row.wake_at = wake_at;
    row.finished_at = Some(now);
    row.started = false;
}

fn schedule_later(row: &mut Task, after: Duration, look_in: Duration, now: Timestamp) {
    enter(row, State::Scheduled, now);
    row.due_at = now.after(after);
    row.wake_at = Some(now.after(look_in));
    row.started = false;
    row.stalls = 0;
}

fn give_attempt_back(row: &mut Task) {
    row.attempt = row.attempt.saturating_sub(1);
}
