//! What each transition makes of one row.

use std::time::Duration;

use crate::backend::Wake;
use crate::store::{Claim, NewRow, Pending, When};
use crate::task::timestamp::duration;
use crate::{State, Task, Timestamp};

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

/// The same without what is long.
pub(super) fn lean(row: &Task) -> Task {
    Task {
        id: row.id,
        kind: row.kind.clone(),
        key: row.key.clone(),
        payload: Vec::new(),
        headers: Default::default(),
        owner: row.owner.clone(),
        last_error: row.last_error.clone(),
        ..*row
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
        row.attempt = row.attempt.saturating_sub(1);
    }
    row.started = false;
    row.stalls = row.stalls.saturating_add(1);
}

/// A lease that goes on; no transition.
pub(super) fn renew(row: &mut Task, started: bool, lease: Duration, now: Timestamp) {
    row.wake_at = Some(now.after(lease));
    row.started |= started;
    // Where the clock has gone back since the claim, this lease is none that was given while it was ahead.
    row.updated_at = row.updated_at.min(now);
}

/// A lease that was given while the clock was ahead; no transition.
pub(super) fn mend_lease(row: &mut Task, now: Timestamp) {
    let lease = row
        .wake_at
        .map_or(0, |wake_at| wake_at.millis_since(row.updated_at));
    row.wake_at = Some(now.after(duration(lease)));
    row.updated_at = now;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, TaskId};

    #[test]
    fn a_lease_that_was_renewed_after_the_clock_went_back_needs_no_mending() {
        let ms = Timestamp::from_millis;
        let lease = Duration::from_secs(30);
        let new_row = NewRow {
            id: TaskId::from_bytes([1; 16]),
            kind: Kind::from("order.cancel"),
            key: None,
            payload: Vec::new(),
            headers: Default::default(),
            due: When::At(ms(0)),
            look_in: Duration::ZERO,
            max_attempts: None,
            replace: false,
            note: Default::default(),
        };
        let mut row = new(new_row, ms(0));
        enter(&mut row, State::Running, ms(25_000));
        renew(&mut row, true, lease, ms(1_000));
        assert_eq!(row.wake_at, Some(ms(31_000)));
        assert!(row.updated_at <= ms(1_000), "{row:?}");
    }
}
