//! What a store owes its callers, in its plainest form: rows in a map, each rule written once more by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use delayline::backend::Wake;
use delayline::store::{
    Ahead, Change, Claim, Ending, Event, Expect, Guarded, NewRow, Pending, PollResult, Renewal, Step, Sweep,
    Target, Verb, When,
};
use delayline::{Answer, Key, Kind, Scheduled, State, Task, TaskId, Timestamp};

/// Every row as the store must have it, and what has happened to the rows since that was last asked for.
#[derive(Clone, Debug)]
pub(crate) struct Model {
    pub(crate) rows: BTreeMap<TaskId, Task>,
    /// A row of any sort, which new ones are made of: outside its crate none can be made from nothing.
    template: Task,
    history: Duration,
    journal: Vec<Entry>,
}

/// One transition of a row, or something that is none (a lease that was renewed).
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) before: Option<Task>,
    pub(crate) after: Task,
    pub(crate) cause: Cause,
}

/// Why a row changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    Inserted,
    Replaced,
    Changed(Verb),
    Hopped,
    Claimed,
    Expired,
    Settled(Ending),
    /// Its version stays.
    Touched,
    Purged,
}

impl Model {
    pub(crate) fn new(template: Task, history: Duration) -> Self {
        Self {
            rows: BTreeMap::new(),
            template,
            history,
            journal: Vec::new(),
        }
    }

    pub(crate) fn take_journal(&mut self) -> Vec<Entry> {
        std::mem::take(&mut self.journal)
    }

    /// Changes a row; its version goes up by one unless it is only touched.
    fn enter(&mut self, id: TaskId, cause: Cause, now: Timestamp, change: impl FnOnce(&mut Task)) -> Task {
        let row = self.rows.get_mut(&id).unwrap();
        let before = row.clone();
        change(row);
        if cause != Cause::Touched {
            row.version = before.version + 1;
            row.updated_at = now;
        }
        let after = row.clone();
        self.journal.push(Entry {
            before: Some(before),
            after: after.clone(),
            cause,
        });
        after
    }

    pub(crate) fn live(&self, kind: &Kind, key: &Key) -> Option<TaskId> {
        let of_key = |row: &&Task| row.kind == *kind && row.key.as_ref() == Some(key) && row.state.is_live();
        self.rows.values().find(of_key).map(|row| row.id)
    }

    /// The row of a target; by key its live row, else the one written last.
    pub(crate) fn find(&self, target: &Target) -> Option<&Task> {
        match target {
            Target::Id(id) => self.rows.get(id),
            Target::Key(kind, key) => match self.live(kind, key) {
                Some(id) => self.rows.get(&id),
                None => self
                    .rows
                    .values()
                    .filter(|row| row.kind == *kind && row.key.as_ref() == Some(key))
                    .max_by_key(|row| (row.created_at, row.id)),
            },
        }
    }

    fn is(&self, id: TaskId, state: State, version: u64) -> bool {
        self.rows
            .get(&id)
            .is_some_and(|row| (row.state, row.version) == (state, version))
    }

    /// Ends a claim whose lease has ended.
    fn end_lease(&mut self, id: TaskId, now: Timestamp) -> bool {
        let ended = self
            .rows
            .get(&id)
            .is_some_and(|row| row.state == State::Running && row.wake_at.unwrap() <= now);
        if ended {
            self.enter(id, Cause::Expired, now, |row| {
                row.state = State::Scheduled;
                row.stalls += 1;
                if !row.started {
                    row.attempt -= 1;
                }
                row.started = false;
            });
        }
        ended
    }

    pub(crate) fn insert(&mut self, new: &NewRow, now: Timestamp) -> Scheduled {
        if let Some(row) = self.rows.get(&new.id) {
            return Scheduled::Existing(row.clone());
        }
        if let Some(id) = new.key.as_ref().and_then(|key| self.live(&new.kind, key)) {
            self.end_lease(id, now);
            let row = &self.rows[&id];
            if row.state == State::Running {
                return Scheduled::Running(row.clone());
            }
            if !new.replace {
                return Scheduled::Existing(row.clone());
            }
            return Scheduled::Replaced(self.enter(id, Cause::Replaced, now, |row| {
                row.payload.clone_from(&new.payload);
                row.headers.clone_from(&new.headers);
                row.max_attempts = new.max_attempts;
                anew(row, due(new.due, now), new.overdue_after, now);
            }));
        }
        let mut row = self.template.clone();
        row.id = new.id;
        row.kind = new.kind.clone();
        row.key.clone_from(&new.key);
        row.payload.clone_from(&new.payload);
        row.headers.clone_from(&new.headers);
        row.version = 1;
        row.max_attempts = new.max_attempts;
        row.owner = None;
        (row.created_at, row.updated_at) = (now, now);
        anew(&mut row, due(new.due, now), new.overdue_after, now);
        self.rows.insert(row.id, row.clone());
        self.journal.push(Entry {
            before: None,
            after: row.clone(),
            cause: Cause::Inserted,
        });
        Scheduled::New(row)
    }

    pub(crate) fn change(&mut self, change: &Change, now: Timestamp) -> Answer {
        let Some(id) = self.find(&change.target).map(|row| row.id) else {
            return Answer::NotFound;
        };
        self.end_lease(id, now);
        let row = &self.rows[&id];
        let redrive = matches!(change.verb, Verb::Redrive { .. });
        let for_dead = redrive || change.verb == Verb::Dismiss;
        match (row.state, for_dead) {
            (State::Scheduled, false) | (State::Dead, true) => {}
            (State::Scheduled | State::Running, true) => return Answer::Conflict(row.clone()),
            (State::Running, false) => return Answer::TooLate(row.clone()),
            _ => return Answer::Finished(row.clone()),
        }
        let expected = match change.expect {
            Expect::Anything => true,
            Expect::Version(version) => row.version == version,
            Expect::Due(due) => row.due_at == due,
        };
        if !expected {
            return Answer::Conflict(row.clone());
        }
        let live = row.key.as_ref().and_then(|key| self.live(&row.kind, key));
        if let (true, Some(other)) = (redrive, live) {
            return Answer::Conflict(self.rows[&other].clone());
        }
        let history = self.history;
        let cause = Cause::Changed(change.verb.clone());
        Answer::Done(self.enter(id, cause, now, |row| match change.verb {
            Verb::Reschedule {
                due: when,
                overdue_after,
            } => anew(row, due(when, now), overdue_after, now),
            Verb::Edit {
                ref payload,
                due: to,
                overdue_after,
            } => {
                row.payload.clone_from(payload);
                match to {
                    Some(when) => anew(row, due(when, now), overdue_after, now),
                    None => row.wake_at = Some(now.after(overdue_after)),
                }
            }
            Verb::RunNow { overdue_after } | Verb::Redrive { overdue_after } => {
                anew(row, now, overdue_after, now)
            }
            Verb::Cancel | Verb::Dismiss => {
                finish(row, State::Cancelled, Some(now.after(history)), now);
            }
        }))
    }

    pub(crate) fn advance(&mut self, step: &Step, now: Timestamp) -> Guarded {
        let Step {
            id, version, event, ..
        } = step;
        match event {
            Event::Hop { overdue_after } if self.is(*id, State::Scheduled, *version) => {
                self.hop(*id, *overdue_after, now)
            }
            Event::End { ending } if self.is(*id, State::Running, *version) => {
                self.end(*id, ending, now);
            }
            _ => return Guarded::Lost,
        }
        Guarded::Done
    }

    fn hop(&mut self, id: TaskId, overdue_after: Duration, now: Timestamp) {
        let updated_at = self.rows[&id].updated_at;
        self.enter(id, Cause::Hopped, updated_at, |row| {
            row.hop += 1;
            row.wake_at = Some(now.after(overdue_after));
        });
    }

    fn end(&mut self, id: TaskId, ending: &Ending, now: Timestamp) {
        let history = self.history;
        self.enter(id, Cause::Settled(ending.clone()), now, |row| match ending {
            Ending::Done => finish(row, State::Done, Some(now.after(history)), now),
            Ending::Cancelled => {
                finish(row, State::Cancelled, Some(now.after(history)), now);
                row.attempt -= 1;
            }
            Ending::Dead { error, give_back } => {
                finish(row, State::Dead, None, now);
                row.last_error = Some(error.clone());
                row.attempt -= u32::from(*give_back);
            }
            Ending::Retry {
                after,
                overdue_after,
                error,
            } => {
                later(row, *after, *overdue_after, now);
                row.last_error = Some(error.clone());
            }
            Ending::Snooze {
                after,
                overdue_after,
                reason,
            } => {
                later(row, *after, *overdue_after, now);
                row.attempt -= 1;
                row.last_error = reason.clone().or(row.last_error.take());
            }
            Ending::Again { after, overdue_after } => anew(row, now.after(*after), *overdue_after, now),
            Ending::Moved { due, overdue_after } => anew(row, *due, *overdue_after, now),
            Ending::Release => {
                row.state = State::Scheduled;
                row.wake_at = Some(now);
                row.attempt -= 1;
                row.started = false;
            }
        });
    }

    pub(crate) fn renew(&mut self, renewal: &Renewal, lease: Duration, now: Timestamp) -> Guarded {
        if !self.is(renewal.id, State::Running, renewal.version) {
            return Guarded::Lost;
        }
        self.enter(renewal.id, Cause::Touched, now, |row| {
            row.wake_at = Some(now.after(lease));
            row.started |= renewal.started;
            row.updated_at = row.updated_at.min(now);
        });
        Guarded::Done
    }

    /// Whether `found` is a right answer to a look at the rows that these wake-ups name; then the rows are as after it.
    pub(crate) fn arrive(
        &mut self,
        wakes: &[Wake],
        claim: &Claim,
        now: Timestamp,
        found: &PollResult,
    ) -> Result<(), String> {
        let valid = |wake: &&Wake| self.is(wake.id, State::Scheduled, wake.version);
        let looked_at: Vec<_> = wakes.iter().filter(valid).map(|wake| wake.id).collect();
        if found.stale != wakes.len() - looked_at.len() {
            return Err(format!("{} are stale", wakes.len() - looked_at.len()));
        }
        self.look(&looked_at, claim, None, now, found)
    }

    /// The same for what is due.
    pub(crate) fn ready(&mut self, claim: &Claim, now: Timestamp, found: &[Task]) -> Result<(), String> {
        let room = |row: &&Task| claim.room.get(&row.kind).is_some_and(|&room| room > 0);
        let is_due = |row: &&Task| row.state == State::Scheduled && row.due_at <= now;
        let due: Vec<_> = self.rows.values().filter(is_due).filter(room).collect();
        let left = due
            .iter()
            .filter(|row| found.iter().all(|claimed| claimed.id != row.id));
        for left in left {
            let later = |claimed: &&Task| {
                claimed.kind == left.kind && (claimed.due_at, claimed.id) > (left.due_at, left.id)
            };
            if let Some(later) = found.iter().find(later) {
                return Err(format!("{left:?} is due for longer than {later:?}"));
            }
        }
        let ids: Vec<_> = due.into_iter().map(|row| row.id).collect();
        let found = PollResult {
            claimed: found.to_vec(),
            waiting: self.waiting(&ids, found),
            ..PollResult::default()
        };
        self.look(&ids, claim, None, now, &found)
    }

    /// The same for what is overdue.
    pub(crate) fn sweep(
        &mut self,
        claim: &Claim,
        sweep: &Sweep,
        now: Timestamp,
        found: &PollResult,
    ) -> Result<(), String> {
        let passed = |row: &&Task| row.wake_at.is_some_and(|wake_at| wake_at <= now) && row.state.is_live();
        let overdue: Vec<_> = self.rows.values().filter(passed).map(|row| row.id).collect();
        let expired = overdue.iter().filter(|&&id| self.end_lease(id, now)).count();
        if found.expired != expired {
            return Err(format!("{expired} leases have ended"));
        }
        self.look(&overdue, claim, Some(sweep.retake), now, found)?;
        let ahead = sweep.ahead.map(|ahead| self.upcoming(ahead, now));
        match ahead.unwrap_or_default() {
            ahead if ahead == found.ahead => Ok(()),
            ahead => Err(format!("ahead is {ahead:?}")),
        }
    }

    /// What a look ahead finds.
    pub(crate) fn upcoming(&self, ahead: Ahead, now: Timestamp) -> Vec<Pending> {
        let from = now.shifted(-i64::try_from(Ahead::SINCE.as_millis()).unwrap());
        let span = from..=now.after(ahead.within);
        let is_near = |row: &&Task| row.state == State::Scheduled && span.contains(&row.due_at);
        let mut near: Vec<_> = self.rows.values().filter(is_near).collect();
        near.sort_by_key(|row| (row.due_at, row.id));
        near.into_iter().take(ahead.limit).map(pending).collect()
    }

    /// How many of `ids` are not among `claimed`, by kind.
    fn waiting(&self, ids: &[TaskId], claimed: &[Task]) -> BTreeMap<Kind, usize> {
        let mut waiting = BTreeMap::new();
        for id in ids {
            if claimed.iter().all(|task| task.id != *id) {
                *waiting.entry(self.rows[id].kind.clone()).or_default() += 1;
            }
        }
        waiting
    }

    /// Takes an answer for what the store chose; all else follows from the rules.
    fn look(
        &mut self,
        ids: &[TaskId],
        claim: &Claim,
        retake: Option<Duration>,
        now: Timestamp,
        found: &PollResult,
    ) -> Result<(), String> {
        let (due, early): (Vec<_>, Vec<_>) = ids.iter().partition(|id| self.rows[id].due_at <= now);
        let mut bytes = 0;
        let mut room = claim.room.clone();
        for task in &found.claimed {
            let row = self.rows.get(&task.id);
            let places = room.get_mut(&task.kind).filter(|places| **places > 0);
            let (Some(row), Some(places), true) = (row, places, due.contains(&task.id)) else {
                return Err(format!("{} is not to be claimed", task.id));
            };
            *places -= 1;
            if row.state != State::Scheduled || row.due_at > now || bytes >= claim.bytes {
                return Err(format!("{row:?} is not to be claimed"));
            }
            bytes += row.payload.len();
            let claimed = self.enter(task.id, Cause::Claimed, now, |row| {
                row.state = State::Running;
                row.attempt += 1;
                row.owner = Some(claim.owner.to_string());
                row.wake_at = Some(now.after(claim.lease));
            });
            if claimed != *task {
                return Err(format!("claimed is {claimed:?}"));
            }
        }
        let waiting = self.waiting(&due, &found.claimed);
        if found.waiting != waiting {
            return Err(format!("waiting are {waiting:?}"));
        }
        // Only for want of room.
        for kind in waiting.keys() {
            if room.get(kind).is_some_and(|&room| room > 0) && bytes < claim.bytes {
                return Err(format!("there was room for more of kind {kind}"));
            }
        }
        let mut told: Vec<_> = found.early.clone();
        told.sort_by_key(|early| early.wake.id);
        let mut owed: Vec<_> = early.iter().map(|id| pending(&self.rows[id])).collect();
        owed.sort_by_key(|early| early.wake.id);
        if told != owed {
            return Err(format!("early are {owed:?}"));
        }
        if let Some(retake) = retake {
            for id in early {
                self.enter(id, Cause::Touched, now, |row| {
                    row.wake_at = Some(now.after(retake))
                });
            }
        }
        Ok(())
    }

    /// Removes history that is over, and mends leases that were given while the clock was ahead.
    pub(crate) fn purge(&mut self, now: Timestamp) -> u64 {
        let mut removed = 0;
        for id in Vec::from_iter(self.rows.keys().copied()) {
            let row = &self.rows[&id];
            if row.state == State::Running && row.updated_at > now {
                self.enter(id, Cause::Touched, now, |row| {
                    let lease = row.wake_at.unwrap().millis_since(row.updated_at);
                    row.wake_at = Some(now.shifted(lease));
                    row.updated_at = now;
                });
            } else if matches!(row.state, State::Done | State::Cancelled) && row.wake_at.unwrap() <= now {
                let row = self.rows.remove(&id).unwrap();
                self.journal.push(Entry {
                    before: Some(row.clone()),
                    after: row,
                    cause: Cause::Purged,
                });
                removed += 1;
            }
        }
        removed
    }
}

fn due(when: When, now: Timestamp) -> Timestamp {
    match when {
        When::After(delay) => now.after(delay),
        When::At(time) => time,
    }
}

/// As if it had just been scheduled.
fn anew(row: &mut Task, due_at: Timestamp, overdue_after: Duration, now: Timestamp) {
    row.state = State::Scheduled;
    row.due_at = due_at;
    row.planned_at = due_at.max(now);
    row.wake_at = Some(now.after(overdue_after));
    (row.attempt, row.hop, row.stalls, row.started) = (0, 0, 0, false);
    (row.last_error, row.finished_at) = (None, None);
}

fn later(row: &mut Task, after: Duration, overdue_after: Duration, now: Timestamp) {
    row.state = State::Scheduled;
    row.due_at = now.after(after);
    row.wake_at = Some(now.after(overdue_after));
    (row.stalls, row.started) = (0, false);
}

fn finish(row: &mut Task, state: State, wake_at: Option<Timestamp>, now: Timestamp) {
    row.state = state;
    row.wake_at = wake_at;
    row.finished_at = Some(now);
    row.started = false;
}

pub(crate) fn pending(row: &Task) -> Pending {
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
