//! Claims rows for workers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use tracing::{debug, error};

use super::loaded::digits;
use super::retry_window::UNREADABLE_TRIES;
use super::table_engine::TableEngine;
use crate::store::rules::Capacity;
use crate::store::table::{Columns, Found, Table, Unreadable, Which};
use crate::store::{Claim, Pending, PollResult, Stamped};
use crate::task::wake::Wake;
use crate::{Error, State, Task, TaskId};

impl<T: Table> TableEngine<T> {
    /// As [`Store::arrive`](crate::store::Store::arrive): claims first, as most wake-ups are of rows that are due.
    pub(super) async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<PollResult>, Error> {
        let mut capacity = Capacity::new(claim);
        let named = wakes.iter().filter(|wake| capacity.has_room(&wake.kind));
        let named: Vec<_> = named.map(|wake| (wake.id, wake.version)).collect();
        let (mut claimed_at, mut polled) = (None, PollResult::default());
        if !named.is_empty() {
            let Stamped { now, found } = self.claim_in_table(Which::These(&named), claim).await?;
            self.log_unreadable(&found.unreadable);
            (claimed_at, polled.claimed) = (Some(now), found.rows);
        }
        if let Some(now) = claimed_at.filter(|_| polled.claimed.len() == wakes.len()) {
            return Ok(Stamped { now, found: polled });
        }
        // Why the others are not.
        let claimed: BTreeSet<TaskId> = polled.claimed.iter().map(|row| row.id).collect();
        let left: Vec<_> = wakes.iter().filter(|wake| !claimed.contains(&wake.id)).collect();
        let ids: Vec<_> = left.iter().map(|wake| wake.id).collect();
        let read = self.table.read(&ids, &[], Columns::Lean).await;
        let Some(read) = self.more(&polled.claimed, read)? else {
            let now = claimed_at.unwrap_or_default();
            return Ok(Stamped { now, found: polled });
        };
        polled.stale = left.len();
        let now = claimed_at.unwrap_or(read.now);
        polled.claimed.iter().for_each(|row| capacity.take_room(row));
        let mut rows: BTreeMap<_, _> = read.found.rows.iter().map(|row| (row.id, row)).collect();
        for wake in left {
            let row = rows.remove(&wake.id);
            let is_meant = |row: &&Task| row.state == State::Scheduled && row.version == wake.version;
            let Some(row) = row.filter(is_meant) else {
                continue;
            };
            polled.stale -= 1;
            if row.due_at > now {
                polled.early.push(Pending::of(row));
            } else if !capacity.has_room(&row.kind) {
                *polled.waiting.entry(row.kind.clone()).or_default() += 1;
            }
            // Else another transaction has it locked.
        }
        Ok(Stamped { now, found: polled })
    }

    /// As [`Store::ready`](crate::store::Store::ready).
    pub(super) async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        let mut left = claim.clone();
        let Stamped { now, mut found } = self.claim_in_table(Which::Due, claim).await?;
        let mut rows = std::mem::take(&mut found.rows);
        for _ in 1..UNREADABLE_TRIES {
            if found.unreadable.is_empty() {
                break;
            }
            // Those that cannot be read are out of the way now, and others may be behind them.
            self.log_unreadable(&found.unreadable);
            let mut capacity = Capacity::new(claim);
            rows.iter().for_each(|row| capacity.take_room(row));
            capacity.leave(&mut left);
            let claimed = self.claim_in_table(Which::Due, &left).await;
            let Some(more) = self.more(&rows, claimed)? else {
                break;
            };
            found = more.found;
            rows.append(&mut found.rows);
        }
        rows.sort_by_key(|row| (row.due_at, row.id));
        Ok(Stamped { now, found: rows })
    }

    /// Claims rows. Whether that is noted differs between kinds, and a table knows one answer for a call: so it is asked for
    /// each of both sorts. The two sorts take turns at being first, so that neither keeps the room for bytes from the other.
    pub(super) async fn claim_in_table(
        &self,
        which: Which<'_>,
        claim: &Claim,
    ) -> Result<Stamped<Found>, Error> {
        let Some((mut one, mut other)) = claim.split() else {
            return self.table.claim(which, claim).await;
        };
        if self.other_first.fetch_not(Ordering::Relaxed) {
            std::mem::swap(&mut one, &mut other);
        }
        let first = self.table.claim(which, &one).await?;
        let taken = first.found.rows.iter().map(|row| row.payload.len());
        other.bytes = claim.bytes.saturating_sub(taken.fold(0, usize::saturating_add));
        if other.bytes == 0 {
            return Ok(first);
        }
        let second = self.table.claim(which, &other).await;
        Ok(match self.more(&first.found.rows, second)? {
            Some(second) => Stamped {
                now: second.now,
                found: first.found.and(second.found),
            },
            None => first,
        })
    }

    /// What a try for more has given; nothing if it failed after rows were claimed, which must not wait for the end of their
    /// lease.
    fn more<A>(&self, claimed: &[Task], tried: Result<A, Error>) -> Result<Option<A>, Error> {
        match tried {
            Err(error) if !claimed.is_empty() => {
                debug!(store = self.table.name(), %error, "fewer due tasks were claimed than there may be");
                Ok(None)
            }
            tried => tried.map(Some),
        }
    }

    /// Tells of rows that were set aside.
    pub(super) fn log_unreadable(&self, rows: &[Unreadable]) {
        for row in rows {
            error!(
                store = self.table.name(),
                id = digits(row),
                error = row.why,
                "the row of a task cannot be read, so it does not run, and holds up no other; repair or remove it"
            );
        }
    }
}
