//! Says when a lease has ended, and computes what its end or its renewal makes of a row.

use std::time::Duration;

use super::transition::enter;
use crate::task::timestamp::duration;
use crate::{State, Task, Timestamp};

/// Marks, as its owner, a row that is set aside because it cannot be read: no worker holds its claim.
pub(in crate::store) const NOBODY: &str = "nobody: the row cannot be read";

/// Whether the lease of a running row has ended. `hold!` of PostgreSQL and `held` of MySQL ask the same of rows that they lock.
pub(in crate::store) fn lease_has_ended(row: &Task, now: Timestamp) -> bool {
    row.state == State::Running && row.wake_at.is_none_or(|lease_until| lease_until <= now)
}

/// One transition, back to scheduled since its lease has ended: a stall, if a worker had it.
pub(in crate::store) fn expire(row: &mut Task, now: Timestamp) {
    enter(row, State::Scheduled, now);
    if !row.started {
        row.attempt = row.attempt.saturating_sub(1);
    }
    row.started = false;
    let is_of_worker = row.owner.as_deref() != Some(NOBODY);
    row.stalls = row.stalls.saturating_add(u32::from(is_of_worker));
}

/// A lease that goes on; no transition.
pub(in crate::store) fn renew(row: &mut Task, started: bool, lease: Duration, now: Timestamp) {
    row.wake_at = Some(now.after(lease));
    row.started |= started;
    // Where the clock has gone back since the claim, this lease is none that was given while it was ahead.
    row.updated_at = row.updated_at.min(now);
}

/// A lease that was given while the clock was ahead; no transition.
pub(in crate::store) fn mend_lease(row: &mut Task, now: Timestamp) {
    let lease = row
        .wake_at
        .map_or(0, |wake_at| wake_at.millis_since(row.updated_at));
    row.wake_at = Some(now.after(duration(lease)));
    row.updated_at = now;
}

#[cfg(test)]
mod tests {
    use super::super::transition::new;
    use super::*;
    use crate::store::{NewRow, When};
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
            overdue_after: Duration::ZERO,
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
