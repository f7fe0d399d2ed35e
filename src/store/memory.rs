//! Keeps rows in this process's memory.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::rows::{LAST_TIME, Rows};
use super::transition::Transition;
use super::{
    Ahead, Change, Claim, Guarded, Looked, NewRow, Note, Noted, Page, Pending, Renewal, Stamped, Step, Store,
    Sweep, Target, row,
};
use crate::backend::Wake;
use crate::clock::Clock;
use crate::{Answer, Error, Kind, Scheduled, State, Task, TaskId, Timestamp, defaults};

/// Keeps rows in this process's memory: for tests and simulations, and for tasks that may end with the process.
///
/// A clone is another handle of the same rows. Every call is one step under one lock, which is never held across an
/// await, so it comes out the same way every time under a simulated clock.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::Scheduler;
/// use delayline::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new().keep_history(Duration::from_secs(3600));
/// let scheduler = Scheduler::new(store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    rows: Arc<Mutex<Rows>>,
    clock: Clock,
    history: Duration,
}

impl MemoryStore {
    /// An empty store that goes by the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// An empty store that goes by `clock`.
    pub fn with_clock(clock: Clock) -> Self {
        Self {
            rows: Arc::default(),
            clock,
            history: defaults::HISTORY,
        }
    }

    /// Keeps rows that this handle finishes or cancels for `history`; [`defaults::HISTORY`] otherwise.
    #[must_use]
    pub fn keep_history(mut self, history: Duration) -> Self {
        self.history = history;
        self
    }

    /// The rows, and the time at which they are this caller's: read under the lock, as a server reads it in the
    /// statement.
    fn look(&self) -> (MutexGuard<'_, Rows>, Timestamp) {
        // No step leaves rows half changed unless it panics; and then they are still the best there is.
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        (rows, now)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("clock", &self.clock)
            .field("history", &self.history)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl Store for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.clock.now())
    }

    async fn insert(&self, new: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        let (mut rows, now) = self.look();
        let found = new.into_iter().map(|new| Ok(rows.insert(new, now))).collect();
        Ok(Stamped { now, found })
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        let (mut rows, now) = self.look();
        let answer = |change: &Change| Ok(rows.answer(change, now, self.history));
        let found = changes.iter().map(answer).collect();
        Ok(Stamped { now, found })
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<Looked>, Error> {
        let (mut rows, now) = self.look();
        let mut look = Look::new(claim, now);
        for wake in wakes {
            if rows.is(wake.id, State::Scheduled, wake.version) {
                look.at(&mut rows, wake.id);
            } else {
                look.found.stale += 1;
            }
        }
        Ok(look.stamped())
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        let (mut rows, now) = self.look();
        let mut look = Look::new(claim, now);
        for (kind, &room) in &claim.room {
            let due = rows.due(State::Scheduled, kind, Timestamp::MIN..=now);
            let due: Vec<_> = due.take(room).collect();
            for id in due {
                look.at(&mut rows, id);
            }
        }
        let mut found = look.found.claimed;
        found.sort_by_key(|task| (task.due_at, task.id));
        Ok(Stamped { now, found })
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<Looked>, Error> {
        let (mut rows, now) = self.look();
        let mut look = Look::new(claim, now);
        let overdue = rows.overdue_of_each_kind(State::Scheduled, now, sweep.limit);
        let ended = rows.overdue_of_each_kind(State::Running, now, sweep.limit);
        for &id in &ended {
            rows.expire(id, now, claim.expired());
        }
        look.found.expired = ended.len();
        for id in ended.into_iter().chain(overdue) {
            look.at(&mut rows, id);
        }
        for early in &look.found.early {
            rows.change(early.wake.id, |row| {
                row.wake_at = Some(now.after(sweep.retake));
            });
        }
        look.found.ahead = sweep
            .ahead
            .map_or_else(Vec::new, |ahead| rows.upcoming(now, ahead));
        Ok(look.stamped())
    }

    async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
        let (mut rows, now) = self.look();
        let take = |step: &Step| {
            let transition = Transition::of(&step.event, self.history);
            if !rows.is(step.id, step.event.needs(), step.version) {
                return Guarded::Lost;
            }
            rows.enter(step.id, now, &step.note, |row| transition.apply(row, now));
            Guarded::Done
        };
        Ok(steps.iter().map(take).collect())
    }

    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        let (mut rows, now) = self.look();
        let extend = |renewal: &Renewal| {
            rows.guarded(renewal.id, State::Running, renewal.version, |row| {
                row::renew(row, renewal.started, lease, now);
            })
        };
        Ok(claims.iter().map(extend).collect())
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        let (rows, _) = self.look();
        Ok(rows.find(target).cloned())
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        let (rows, _) = self.look();
        let listed = rows.listed(page.state, &page.kind, page.after);
        Ok(listed.take(page.limit).cloned().collect())
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        let (rows, _) = self.look();
        let kinds = rows.kinds(state).into_iter();
        Ok(kinds
            .filter(|kind| after.is_none_or(|after| kind > after))
            .take(limit)
            .collect())
    }

    async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let (rows, now) = self.look();
        let count = |span: &Duration| {
            let due = rows.due(state, kind, Timestamp::MIN..=now.after(*span));
            due.take(most).count()
        };
        let found = spans.iter().map(count).collect();
        Ok(Stamped { now, found })
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        let (rows, _) = self.look();
        Ok(rows.noted(id).cloned().unwrap_or_default())
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        let (mut rows, now) = self.look();
        let mut kinds = rows.kinds(State::Done);
        kinds.extend(rows.kinds(State::Cancelled));
        kinds.sort();
        kinds.dedup();
        for kind in rows.kinds(State::Running) {
            let leases = rows.overdue(State::Running, &kind, LAST_TIME);
            let ahead = leases.filter(|&id| rows.get(id).is_some_and(|row| row.updated_at > now));
            let ahead: Vec<_> = ahead.collect();
            for &id in ahead.iter().rev().take(limit) {
                rows.change(id, |row| row::mend_lease(row, now));
            }
        }
        let mut removed = 0;
        for kind in kinds {
            let done = rows.overdue(State::Done, &kind, now);
            let cancelled = rows.overdue(State::Cancelled, &kind, now);
            let past: Vec<_> = done.chain(cancelled).take(limit).collect();
            for id in past {
                rows.remove(id);
                removed += 1;
            }
        }
        Ok(removed)
    }
}

impl Rows {
    /// Changes a row that is in this state and at this version.
    fn guarded(&mut self, id: TaskId, state: State, version: u64, change: impl FnOnce(&mut Task)) -> Guarded {
        if !self.is(id, state, version) {
            return Guarded::Lost;
        }
        self.change(id, change);
        Guarded::Done
    }

    /// Whether there is a row of this id in this state and at this version.
    fn is(&self, id: TaskId, state: State, version: u64) -> bool {
        self.get(id)
            .is_some_and(|row| row.state == state && row.version == version)
    }

    fn overdue_of_each_kind(&self, state: State, now: Timestamp, limit: usize) -> Vec<TaskId> {
        self.kinds(state)
            .iter()
            .flat_map(|kind| self.overdue(state, kind, now).take(limit))
            .collect()
    }

    fn upcoming(&self, now: Timestamp, ahead: Ahead) -> Vec<Pending> {
        let until = now.after(ahead.within);
        let mut due: Vec<_> = self
            .kinds(State::Scheduled)
            .iter()
            .flat_map(|kind| self.due(State::Scheduled, kind, Ahead::from(now)..=until))
            .filter_map(|id| self.get(id))
            .collect();
        due.sort_by_key(|row| (row.due_at, row.id));
        due.into_iter().take(ahead.limit).map(row::pending).collect()
    }
}

/// A look at rows for one claimer, at one time.
struct Look<'a> {
    claim: &'a Claim,
    now: Timestamp,
    room: BTreeMap<Kind, usize>,
    bytes: usize,
    /// What is noted of each claim.
    note: Note,
    found: Looked,
}

impl<'a> Look<'a> {
    fn new(claim: &'a Claim, now: Timestamp) -> Self {
        Self {
            claim,
            now,
            room: claim.room.clone(),
            bytes: claim.bytes,
            note: Note {
                event: claim.claimed(),
                sent: None,
            },
            found: Looked::default(),
        }
    }

    /// Looks at a scheduled row, and claims it if it is due and there is room.
    fn at(&mut self, rows: &mut Rows, id: TaskId) {
        let Some(row) = rows.get(id) else {
            return;
        };
        if row.due_at > self.now {
            self.found.early.push(row::pending(row));
            return;
        }
        let room = self.room.get_mut(&row.kind);
        let Some(room) = room.filter(|room| **room > 0 && self.bytes > 0) else {
            *self.found.waiting.entry(row.kind.clone()).or_default() += 1;
            return;
        };
        *room -= 1;
        self.bytes = self.bytes.saturating_sub(row.payload.len());
        let claimed = rows.enter(id, self.now, &self.note, |row| {
            row::claim(row, self.claim, self.now)
        });
        self.found.claimed.extend(claimed.cloned());
    }

    fn stamped(self) -> Stamped<Looked> {
        Stamped {
            now: self.now,
            found: self.found,
        }
    }
}
