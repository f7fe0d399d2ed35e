//! Takes rows whose `wake_at` has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::loaded::Loaded;
use super::share::Share;
use super::table_engine::TableEngine;
use crate::store::rules::{self, Capacity};
use crate::store::table::{By, Columns, Found, Range, Start, Table, Which};
use crate::store::{Ahead, Claim, Pending, PollResult, Stamped, Sweep};
use crate::{Error, Kind, State, Task, TaskId, Timestamp};

/// For how long a row is left alone that cannot be read, before it is looked at, and told of, again.
const ASIDE: Duration = Duration::from_secs(60);

impl<T: Table> TableEngine<T> {
    /// As [`Store::sweep`](crate::store::Store::sweep). Nearly always there is nothing to do, and that takes one call.
    pub(super) async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<PollResult>, Error> {
        let share = self.overdue.of(sweep.limit);
        let mut ranges = [State::Running, State::Scheduled]
            .map(|state| Range::overdue(state, share))
            .to_vec();
        ranges.extend(sweep.ahead.map(|ahead| upcoming(ahead, &self.ahead)));
        let Stamped { now, found } = self.table.range(&ranges, Columns::Lean).await?;
        let mut found = found.into_iter();
        let mut next = || found.next().unwrap_or_default();
        let (ended, overdue, coming) = (next(), next(), next());
        let rows = ended.rows.len() + overdue.rows.len();
        self.overdue.found(sweep.limit, rows);
        if let Some(ahead) = sweep.ahead {
            self.ahead.found(ahead.limit, coming.rows.len());
        }

        let unreadable = [ended.unreadable, overdue.unreadable].concat();
        if !unreadable.is_empty() {
            self.log_unreadable(&unreadable);
            self.table.set_aside(&unreadable, ASIDE).await?;
        }
        let mut swept = Swept::new(Capacity::new(claim), ended.rows, overdue.rows);
        swept.decide(claim, now, sweep.retake);
        let missed = swept.loaded.write(&self.table, &BTreeSet::new()).await?;
        swept.leave_out(|id| missed.contains_key(&id));

        let mut polled = PollResult {
            claimed: self.claim_swept(&mut swept, claim).await?,
            expired: swept.ended.len(),
            early: std::mem::take(&mut swept.early),
            waiting: std::mem::take(&mut swept.waiting),
            ..PollResult::default()
        };
        if let Some(ahead) = sweep.ahead {
            polled.ahead = swept.upcoming(coming.rows, ahead, now);
            polled.forget_claimed();
            polled.ahead.truncate(ahead.limit);
        }
        Ok(Stamped { now, found: polled })
    }

    /// Claims what a sweep found due and has room for.
    async fn claim_swept(&self, swept: &mut Swept<'_>, claim: &Claim) -> Result<Vec<Task>, Error> {
        if swept.due.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.claim_in_table(Which::These(&swept.due), claim).await?.found;
        let Found { rows, unreadable } = found;
        self.log_unreadable(&unreadable);
        // How long their payloads are was not known before.
        let bytes = rows.iter().map(|row| row.payload.len());
        if bytes.fold(0, usize::saturating_add) >= claim.bytes {
            let claimed: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
            let left = swept.due.iter().filter(|(id, _)| !claimed.contains(id));
            for row in left.filter_map(|(id, _)| swept.loaded.rows.get(*id)) {
                *swept.waiting.entry(row.kind.clone()).or_default() += 1;
            }
        }
        Ok(rows)
    }

    /// As [`Store::purge`](crate::store::Store::purge).
    pub(super) async fn purge(&self, limit: usize) -> Result<u64, Error> {
        let leases = Range {
            from: Start::Ago(Duration::ZERO),
            within: None,
            backwards: true,
            ..Range::overdue(State::Running, self.removed.of(limit))
        };
        let Stamped { now, found } = self.table.range(&[leases], Columns::Lean).await?;
        let mut leases = found.into_iter().next().unwrap_or_default();
        leases.rows.retain(|row| row.updated_at > now);
        let ids: Vec<_> = leases.rows.iter().map(|row| row.id).collect();
        let mut loaded = Loaded::of(leases);
        for id in ids {
            loaded.rows.change(id, |row| rules::mend_lease(row, now));
        }
        // What was renewed meanwhile has the right lease.
        loaded.write(&self.table, &BTreeSet::new()).await?;
        let ended = [State::Done, State::Cancelled, State::Dead];
        let mut all = 0;
        loop {
            let share = self.removed.of(limit).min(limit - all);
            let removed = self.table.remove(&ended, share).await?;
            let rows = usize::try_from(removed).unwrap_or(usize::MAX);
            self.removed.found(limit, rows);
            all = rows.saturating_add(all);
            // Of no kind there is more, or enough is removed for now.
            if rows < share || all >= limit {
                return Ok(all as u64);
            }
        }
    }
}

/// What becomes due, of every kind.
fn upcoming(ahead: Ahead, share: &Share) -> Range {
    Range {
        by: By::Due,
        from: Start::Ago(Ahead::SINCE),
        within: Some(ahead.within),
        ..Range::overdue(State::Scheduled, share.of(ahead.limit))
    }
}

/// What a sweep has found, and what becomes of it.
struct Swept<'a> {
    loaded: Loaded,
    capacity: Capacity<'a>,
    /// Those whose lease has ended, and then the others, each in their order.
    ended: Vec<TaskId>,
    overdue: Vec<TaskId>,
    /// To be claimed, each at its version.
    due: Vec<(TaskId, u64)>,
    early: Vec<Pending>,
    waiting: BTreeMap<Kind, usize>,
}

impl<'a> Swept<'a> {
    fn new(capacity: Capacity<'a>, ended: Vec<Task>, overdue: Vec<Task>) -> Self {
        let ids = |rows: &[Task]| rows.iter().map(|row| row.id).collect();
        let (ended_ids, overdue_ids) = (ids(&ended), ids(&overdue));
        let rows = [ended, overdue].concat();
        Self {
            loaded: Loaded::of(Found::of(rows)),
            capacity,
            ended: ended_ids,
            overdue: overdue_ids,
            due: Vec::new(),
            early: Vec::new(),
            waiting: Default::default(),
        }
    }

    fn decide(&mut self, claim: &Claim, now: Timestamp, retake: Duration) {
        for &id in &self.ended {
            if let Some(row) = self.loaded.rows.get(id) {
                let note = claim.expired(&row.kind);
                self.loaded
                    .rows
                    .enter(id, now, &note, |row| rules::expire(row, now));
            }
        }
        for &id in self.ended.iter().chain(&self.overdue) {
            let Some(row) = self.loaded.rows.get(id) else {
                continue;
            };
            if row.due_at > now {
                self.early.push(Pending::of(row));
            } else if self.capacity.has_room(&row.kind) {
                self.capacity.take_room(row);
                self.due.push((id, row.version));
            } else {
                *self.waiting.entry(row.kind.clone()).or_default() += 1;
            }
        }
        // For this worker alone for a while.
        for early in &self.early {
            let retaken = |row: &mut Task| row.wake_at = Some(now.after(retake));
            self.loaded.rows.change(early.wake.id, retaken);
        }
    }

    /// Leaves out rows that others were quicker with, or keep locked.
    fn leave_out(&mut self, is_missed: impl Fn(TaskId) -> bool) {
        self.ended.retain(|id| !is_missed(*id));
        self.due.retain(|(id, _)| !is_missed(*id));
        self.early.retain(|early| !is_missed(early.wake.id));
    }

    /// What comes next: of the rows that were scheduled, and of those that are since their lease has ended.
    fn upcoming(&self, coming: Vec<Task>, ahead: Ahead, now: Timestamp) -> Vec<Pending> {
        let span = Ahead::from(now)..=now.after(ahead.within);
        let ended = self.ended.iter().filter_map(|id| self.loaded.rows.get(*id));
        let ended = ended.filter(|row| span.contains(&row.due_at));
        let mut rows: Vec<_> = ended.chain(&coming).collect();
        rows.sort_by_key(|row| (row.due_at, row.id));
        rows.into_iter().map(Pending::of).collect()
    }
}
