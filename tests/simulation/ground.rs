//! The one store of a history: the memory store, kept in step with the model, and transactions that lock its rows.

#[path = "ground/open.rs"]
mod open;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use delayline::backend::Wake;
use delayline::clock::Clock;
use delayline::store::{
    Change, Claim, Expect, Guarded, MemoryStore, NewRow, Noted, Page, Paused, PollResult, Renewal, Stamped,
    Step, Store, Sweep, Target, Verb,
};
use delayline::{Answer, Error, Key, Kind, Scheduled, State, Task, TaskId, Timestamp};
use futures_util::FutureExt;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use self::open::Open;
use crate::ledger::Ledger;
use crate::model::Model;

/// For how long a statement waits for a row that another transaction has locked.
const LOCK_WAIT: Duration = Duration::from_millis(200);

/// Passes each operation to the memory store and to the model, in one step, and holds the answers and the rows of the one
/// to those of the other. What is locked it keeps from the operation, as the contract has it.
#[derive(Debug)]
pub(crate) struct Ground {
    memory: MemoryStore,
    /// The store's own, which may be stepped.
    pub(crate) clock: Clock,
    pub(crate) ledger: Arc<Ledger>,
    state: Mutex<Locked>,
    freed: Notify,
}

#[derive(Debug)]
struct Locked {
    model: Model,
    /// By which transaction.
    rows: BTreeMap<TaskId, u64>,
    keys: BTreeMap<(Kind, Key), u64>,
    transactions: u64,
    operations: u64,
    /// The time that a worker's look gave last, and the moment of it.
    heard: Option<(Timestamp, Instant)>,
}

/// What the memory store answers at once.
fn now<T>(answer: impl Future<Output = Result<T, Error>>) -> T {
    let answer = answer.now_or_never().expect("it never waits");
    answer.expect("it never fails")
}

impl Locked {
    fn is_locked(&self, id: TaskId) -> bool {
        self.rows.contains_key(&id)
    }

    /// Whether another transaction has what an insert of this row would touch.
    fn bars_insert(&self, row: &NewRow, by: u64) -> bool {
        let others = |holder: Option<&u64>| holder.is_some_and(|&holder| holder != by);
        let Some(key) = &row.key else {
            return others(self.rows.get(&row.id));
        };
        let live = self.model.live(&row.kind, key);
        others(self.rows.get(&row.id))
            || live.is_some_and(|id| others(self.rows.get(&id)))
            || others(self.keys.get(&(row.kind.clone(), key.clone())))
    }

    /// The same for a change.
    fn bars_change(&self, change: &Change, by: u64) -> bool {
        let others = |holder: Option<&u64>| holder.is_some_and(|&holder| holder != by);
        let Some(row) = self.model.find(&change.target) else {
            return false;
        };
        let key = row.key.clone().map(|key| (row.kind.clone(), key));
        let needs_key = matches!(change.verb, Verb::Redrive { .. });
        others(self.rows.get(&row.id))
            || needs_key
                && key.is_some_and(|key| others(self.keys.get(&key)) || self.key_is_in_flux(&key, by))
    }

    /// Whether the live row of a key is locked.
    fn key_is_in_flux(&self, (kind, key): &(Kind, Key), by: u64) -> bool {
        let live = self.model.live(kind, key);
        live.and_then(|id| self.rows.get(&id))
            .is_some_and(|&holder| holder != by)
    }
}

impl Ground {
    pub(crate) fn new(clock: Clock, history: Duration, ledger: Arc<Ledger>) -> Self {
        let memory = MemoryStore::with_clock(clock.clone()).keep_history(history);
        // A row of another store, to make the model's rows of.
        let scratch = MemoryStore::with_clock(clock.clone());
        let row = NewRow {
            id: TaskId::from_bytes([0; 16]),
            kind: "".into(),
            key: None,
            payload: Vec::new(),
            headers: BTreeMap::new(),
            due: Duration::ZERO.into(),
            overdue_after: Duration::ZERO,
            max_attempts: None,
            replace: false,
            note: Default::default(),
        };
        let template = match now(scratch.insert(vec![row])).found.remove(0) {
            Ok(Scheduled::New(task)) => task,
            other => unreachable!("{other:?}"),
        };
        Self {
            memory,
            clock,
            ledger,
            state: Mutex::new(Locked {
                model: Model::new(template, history),
                rows: BTreeMap::new(),
                keys: BTreeMap::new(),
                transactions: 0,
                operations: 0,
                heard: None,
            }),
            freed: Notify::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Locked> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds what the store did to what it should have done, and tells the ledger.
    fn told(&self, state: &mut Locked, what: &'static str, right: Result<(), String>) {
        if let Err(owed) = right {
            self.ledger.broken("the store", format!("{what}: {owed}"));
        }
        let journal = state.model.take_journal();
        state.operations += 1;
        for entry in &journal {
            let id = entry.after.id;
            let (row, owed) = (now(self.memory.find(&Target::Id(id))), state.model.rows.get(&id));
            if row.as_ref() != owed {
                self.ledger.broken(
                    "the store",
                    format!("{what}: a row is {row:?} and should be {owed:?}"),
                );
            }
        }
        for entry in journal {
            self.ledger.record(entry, what, self.clock.now());
        }
        if state.operations.is_multiple_of(32) {
            self.compare(state, what);
        }
    }

    /// Holds every row to the model.
    fn compare(&self, state: &Locked, what: &str) {
        let mut owed: Vec<_> = state.model.rows.values().collect();
        let rows = self.list_all();
        owed.sort_by_key(|row| row.id);
        if rows.iter().ne(owed.iter().copied()) {
            self.ledger.broken(
                "the store",
                format!("{what}: the rows are {rows:?} and should be {owed:?}"),
            );
        }
    }

    fn list_all(&self) -> Vec<Task> {
        let mut rows = Vec::new();
        for state in State::ALL {
            for kind in now(self.memory.kinds(state, None, usize::MAX)) {
                let page = Page::new(kind, state).limit(usize::MAX);
                rows.extend(now(self.memory.list(&page)));
            }
        }
        rows.sort_by_key(|row| row.id);
        rows
    }

    /// Every row at the end of the history.
    pub(crate) fn rows_at_the_end(&self) -> Vec<Task> {
        self.compare(&self.state(), "the end");
        self.list_all()
    }

    /// The rows of tasks as they are, by id: no pauses.
    pub(crate) fn rows(&self) -> Vec<Task> {
        let state = self.state();
        let rows = state.model.rows.values();
        rows.filter(|row| row.kind.as_str() != Paused::KIND)
            .cloned()
            .collect()
    }

    pub(crate) fn row(&self, id: TaskId) -> Option<Task> {
        self.state().model.rows.get(&id).cloned()
    }

    pub(crate) fn every_row_has_ended(&self) -> bool {
        self.state().model.rows.values().all(|row| !row.state.is_live())
    }

    pub(crate) async fn insert(&self, rows: Vec<NewRow>) -> Stamped<Vec<Result<Scheduled, Error>>> {
        let mut answers: Vec<Option<Result<Scheduled, Error>>> = rows.iter().map(|_| None).collect();
        for wait in [true, false] {
            {
                let mut state = self.state();
                let open = |place: &usize| answers[*place].is_none() && !state.bars_insert(&rows[*place], 0);
                let free: Vec<_> = (0..rows.len()).filter(open).collect();
                if !free.is_empty() {
                    let batch: Vec<_> = free.iter().map(|&place| rows[place].clone()).collect();
                    let Stamped { now, found } = now(self.memory.insert(batch.clone()));
                    let owed: Vec<_> = batch.iter().map(|row| state.model.insert(row, now)).collect();
                    let right = same(
                        found.iter().map(|answer| answer.as_ref().ok()),
                        owed.iter().map(Some),
                    );
                    self.told(&mut state, "insert", right);
                    for (place, answer) in free.into_iter().zip(found) {
                        answers[place] = Some(answer);
                    }
                }
            }
            if wait && answers.iter().any(Option::is_none) {
                self.wait_for_locks().await;
            }
        }
        let found = answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| Err(locked())));
        Stamped {
            now: self.clock.now(),
            found: found.collect(),
        }
    }

    pub(crate) async fn change(&self, changes: Vec<Change>) -> Stamped<Vec<Result<Answer, Error>>> {
        let mut answers: Vec<Option<Result<Answer, Error>>> = changes.iter().map(|_| None).collect();
        for wait in [true, false] {
            {
                let mut state = self.state();
                let open =
                    |place: &usize| answers[*place].is_none() && !state.bars_change(&changes[*place], 0);
                let free: Vec<_> = (0..changes.len()).filter(open).collect();
                if !free.is_empty() {
                    let batch: Vec<_> = free.iter().map(|&place| changes[place].clone()).collect();
                    let Stamped { now, found } = now(self.memory.change(batch.clone()));
                    let owed: Vec<_> = batch
                        .iter()
                        .map(|change| state.model.change(change, now))
                        .collect();
                    let right = same(
                        found.iter().map(|answer| answer.as_ref().ok()),
                        owed.iter().map(Some),
                    );
                    self.told(&mut state, "change", right);
                    for (place, answer) in free.into_iter().zip(found) {
                        answers[place] = Some(answer);
                    }
                }
            }
            if wait && answers.iter().any(Option::is_none) {
                self.wait_for_locks().await;
            }
        }
        let found = answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| Err(locked())));
        Stamped {
            now: self.clock.now(),
            found: found.collect(),
        }
    }

    async fn wait_for_locks(&self) {
        let _ = tokio::time::timeout(LOCK_WAIT, self.freed.notified()).await;
    }

    pub(crate) fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Stamped<PollResult> {
        let mut state = self.state();
        let free: Vec<_> = wakes
            .iter()
            .filter(|wake| !state.is_locked(wake.id))
            .cloned()
            .collect();
        let polled = now(self.memory.arrive(&free, claim));
        self.heard(&mut state, polled.now);
        let right = state.model.arrive(&free, claim, polled.now, &polled.found);
        self.told(&mut state, "arrive", wrong(right, &polled));
        polled
    }

    pub(crate) fn history(&self, id: TaskId) -> Noted {
        now(self.memory.history(id))
    }

    pub(crate) fn ready(&self, claim: &Claim) -> Stamped<Vec<Task>> {
        let mut state = self.state();
        if state.rows.is_empty() {
            let ready = now(self.memory.ready(claim));
            self.heard(&mut state, ready.now);
            let right = state.model.ready(claim, ready.now, &ready.found);
            self.told(&mut state, "ready", wrong(right, &ready));
            return ready;
        }
        // Those that are not locked, by name.
        let at = self.clock.now();
        let is_due =
            |row: &&Task| row.state == State::Scheduled && row.due_at <= at && !state.is_locked(row.id);
        let mut due: Vec<_> = state.model.rows.values().filter(is_due).collect();
        due.sort_by_key(|row| (row.due_at, row.id));
        let wakes: Vec<_> = due.into_iter().map(wake).collect();
        let polled = now(self.memory.arrive(&wakes, claim));
        self.heard(&mut state, polled.now);
        let right = state.model.arrive(&wakes, claim, polled.now, &polled.found);
        self.told(&mut state, "ready", wrong(right, &polled));
        Stamped {
            now: polled.now,
            found: polled.found.claimed,
        }
    }

    pub(crate) fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Stamped<PollResult> {
        let mut state = self.state();
        let at = self.clock.now();
        let has_passed = |row: &Task| row.wake_at.is_some_and(|wake_at| wake_at <= at);
        let locked = |id: &TaskId| state.model.rows.get(id).is_some_and(has_passed);
        if !state.rows.keys().any(locked) {
            let polled = now(self.memory.sweep(claim, sweep));
            self.heard(&mut state, polled.now);
            let right = state.model.sweep(claim, sweep, polled.now, &polled.found);
            self.told(&mut state, "sweep", wrong(right, &polled));
            return polled;
        }
        // Those that are not locked, by name. A change that expects what no row is like ends a lease, and no more.
        let overdue = |state: &Locked, of: State| -> Vec<Task> {
            let rows = state.model.rows.values();
            let rows = rows.filter(|row| row.state == of && has_passed(row) && !state.is_locked(row.id));
            rows.cloned().collect()
        };
        let ended = overdue(&state, State::Running);
        for row in &ended {
            let end = Change {
                target: Target::Id(row.id),
                verb: Verb::Cancel,
                expect: Expect::Version(u64::MAX),
                note: Default::default(),
            };
            let found = now(self.memory.change(vec![end.clone()])).found;
            let owed = state.model.change(&end, at);
            let right = same(
                found.iter().map(|answer| answer.as_ref().ok()),
                [Some(&owed)].into_iter(),
            );
            self.told(&mut state, "sweep", right);
        }
        let wakes: Vec<_> = overdue(&state, State::Scheduled).iter().map(wake).collect();
        let mut polled = now(self.memory.arrive(&wakes, claim));
        self.heard(&mut state, polled.now);
        let right = state.model.arrive(&wakes, claim, polled.now, &polled.found);
        self.told(&mut state, "sweep", wrong(right, &polled));
        polled.found.expired = ended.len();
        // Takes nothing, and looks ahead.
        let ahead = now(self.memory.sweep(claim, &Sweep { limit: 0, ..*sweep }));
        self.heard(&mut state, ahead.now);
        polled.found.ahead = ahead.found.ahead;
        polled
    }

    /// Keeps the time that a worker's look gave.
    fn heard(&self, state: &mut Locked, now: Timestamp) {
        state.heard = Some((now, self.clock.instant()));
    }

    /// The time of steps: the store reckons it from what a look gave less than two seconds ago, if all of them are of claims that
    /// their workers have. So where the clock was set, their times are by what it was before, unless it was set forwards so far
    /// that as much seems to have passed.
    fn time_of(&self, state: &Locked, steps: &[Step]) -> Timestamp {
        let since = |at| self.clock.instant().saturating_duration_since(at);
        let is_given = |step: &Step, reckoned: Timestamp| {
            step.claimed.as_ref().is_some_and(|row| {
                // After the lease that it was claimed under the row is read.
                let holds = row.wake_at.is_some_and(|lease_until| lease_until > reckoned);
                holds && (row.id, row.version) == (step.id, step.version)
            })
        };
        let reckoned = state.heard.map(|(then, at)| (then, at, then.after(since(at))));
        match reckoned {
            Some((then, at, reckoned))
                if steps.iter().all(|step| is_given(step, reckoned))
                    && since(at) < Duration::from_secs(2)
                    && self.clock.now().millis_since(then) < 2_000 =>
            {
                reckoned
            }
            _ => self.clock.now(),
        }
    }

    pub(crate) fn advance(&self, steps: &[Step]) -> Vec<Guarded> {
        self.guarded(
            "advance",
            steps,
            |step| step.id,
            |state, batch| self.time_of(state, batch),
            |batch| now(self.memory.advance(batch)),
            |model, step, at| model.advance(step, at),
        )
    }

    pub(crate) fn renew(&self, renewals: &[Renewal], lease: Duration) -> Vec<Guarded> {
        self.guarded(
            "renew",
            renewals,
            |renewal| renewal.id,
            |_, _| self.clock.now(),
            |batch| now(self.memory.renew(batch, lease)),
            |model, renewal, at| model.renew(renewal, lease, at),
        )
    }

    fn guarded<T: Clone>(
        &self,
        what: &'static str,
        writes: &[T],
        id: impl Fn(&T) -> TaskId,
        time: impl FnOnce(&Locked, &[T]) -> Timestamp,
        write: impl FnOnce(&[T]) -> Vec<Guarded>,
        owed: impl Fn(&mut Model, &T, Timestamp) -> Guarded,
    ) -> Vec<Guarded> {
        let mut state = self.state();
        let free: Vec<_> = writes
            .iter()
            .filter(|write| !state.is_locked(id(write)))
            .cloned()
            .collect();
        let at = time(&state, &free);
        let found = write(&free);
        let owed: Vec<_> = free
            .iter()
            .map(|write| owed(&mut state.model, write, at))
            .collect();
        let right = same(found.iter(), owed.iter());
        self.told(&mut state, what, right);
        let mut found = found.into_iter();
        let answer = |write| match state.is_locked(id(write)) {
            true => Guarded::Blocked,
            false => found.next().unwrap_or(Guarded::Lost),
        };
        writes.iter().map(answer).collect()
    }

    pub(crate) fn find(&self, target: &Target) -> Option<Task> {
        let found = now(self.memory.find(target));
        let owed = self.state().model.find(target).cloned();
        if found != owed {
            self.ledger
                .broken("the store", format!("found {found:?} and should have {owed:?}"));
        }
        found
    }

    pub(crate) fn list(&self, page: &Page) -> Vec<Task> {
        now(self.memory.list(page))
    }

    pub(crate) fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Vec<Kind> {
        now(self.memory.kinds(state, after, limit))
    }

    pub(crate) fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Stamped<Vec<usize>> {
        now(self.memory.due_within(kind, state, spans, most))
    }

    pub(crate) fn purge(&self, limit: usize) -> u64 {
        let mut state = self.state();
        if !state.rows.is_empty() {
            // What is locked is left to the next one; here, all.
            return 0;
        }
        let removed = now(self.memory.purge(limit));
        let owed = state.model.purge(self.clock.now());
        let right = same([removed].iter(), [owed].iter());
        self.told(&mut state, "purge", right);
        removed
    }
}

/// What a statement is told that has waited for long enough.
pub(crate) fn locked() -> Error {
    Error::Store {
        store: "simulated",
        transient: true,
        source: "locked".into(),
    }
}

fn wake(row: &Task) -> Wake {
    crate::model::pending(row).wake
}

fn same<T: PartialEq + Debug>(
    found: impl Iterator<Item = T> + Clone,
    owed: impl Iterator<Item = T> + Clone,
) -> Result<(), String> {
    if found.clone().eq(owed.clone()) {
        return Ok(());
    }
    Err(format!(
        "answered {:?} and should have {:?}",
        Vec::from_iter(found),
        Vec::from_iter(owed)
    ))
}

fn wrong<T: Debug>(right: Result<(), String>, found: &T) -> Result<(), String> {
    right.map_err(|owed| format!("{owed}, but it found {found:?}"))
}
