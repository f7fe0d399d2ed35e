//! Transactions over the one store of a history.

use std::collections::BTreeMap;
use std::sync::Arc;

use delayline::store::{Change, Ending, Guarded, NewRow, Note, Stamped, Step, Store, Target};
use delayline::{Answer, Error, Scheduled, Task, TaskId, Timestamp};

use super::{Ground, Locked, locked, now, same};
use crate::model::Model;

/// An open transaction: no other sees what it did, and what it touched is locked, until it is committed or dropped.
#[derive(Debug)]
pub(crate) struct Open {
    ground: Arc<Ground>,
    number: u64,
    /// The rows that it has changed, as it sees them.
    seen: BTreeMap<TaskId, Task>,
    /// What is to be done at the commit, each as at its time.
    done: Vec<(Timestamp, Deferred)>,
}

#[derive(Debug)]
enum Deferred {
    Insert(NewRow, Scheduled),
    Change(Change, Answer),
    Finish(Step),
}

impl Open {
    pub(crate) fn begin(ground: &Arc<Ground>) -> Self {
        let mut state = ground.state();
        state.transactions += 1;
        Self {
            ground: Arc::clone(ground),
            number: state.transactions,
            seen: BTreeMap::new(),
            done: Vec::new(),
        }
    }

    /// The rows as this transaction sees them.
    fn view(&self, state: &Locked) -> Model {
        let mut view = state.model.clone();
        view.rows.extend(self.seen.clone());
        view
    }

    /// Takes in what a statement did: the rows are locked from here on.
    fn keep(&mut self, state: &mut Locked, mut view: Model) -> bool {
        let journal = view.take_journal();
        for entry in &journal {
            let row = &entry.after;
            state.rows.insert(row.id, self.number);
            if let Some(key) = &row.key {
                state.keys.insert((row.kind.clone(), key.clone()), self.number);
            }
            self.seen.insert(row.id, row.clone());
        }
        !journal.is_empty()
    }

    pub(crate) async fn insert(&mut self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        let mut answers = Vec::with_capacity(rows.len());
        for row in rows {
            if self.ground.state().bars_insert(&row, self.number) {
                self.ground.wait_for_locks().await;
            }
            let ground = Arc::clone(&self.ground);
            let mut state = ground.state();
            if state.bars_insert(&row, self.number) {
                return Err(locked());
            }
            let at = ground.clock.now();
            let mut view = self.view(&state);
            let answer = view.insert(&row, at);
            if self.keep(&mut state, view) {
                self.done.push((at, Deferred::Insert(row, answer.clone())));
            }
            answers.push(answer);
        }
        Ok(Stamped {
            now: self.ground.clock.now(),
            found: answers,
        })
    }

    pub(crate) async fn change(&mut self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        let mut answers = Vec::with_capacity(changes.len());
        for change in changes {
            if self.ground.state().bars_change(&change, self.number) {
                self.ground.wait_for_locks().await;
            }
            let ground = Arc::clone(&self.ground);
            let mut state = ground.state();
            if state.bars_change(&change, self.number) {
                return Err(locked());
            }
            let at = ground.clock.now();
            let mut view = self.view(&state);
            let answer = view.change(&change, at);
            if self.keep(&mut state, view) {
                self.done.push((at, Deferred::Change(change, answer.clone())));
            }
            answers.push(answer);
        }
        Ok(Stamped {
            now: self.ground.clock.now(),
            found: answers,
        })
    }

    pub(crate) fn find(&self, target: &Target) -> Option<Task> {
        let state = self.ground.state();
        self.view(&state).find(target).cloned()
    }

    pub(crate) fn finish(&mut self, id: TaskId, version: u64, note: Note) -> Result<bool, Error> {
        let ground = Arc::clone(&self.ground);
        let mut state = ground.state();
        if state.rows.get(&id).is_some_and(|&holder| holder != self.number) {
            return Err(locked());
        }
        let at = ground.clock.now();
        let mut view = self.view(&state);
        let step = Step::end(id, version, Ending::Done).with_note(note);
        let finished = view.advance(&step, at) == Guarded::Done;
        if self.keep(&mut state, view) {
            self.done.push((at, Deferred::Finish(step)));
        }
        Ok(finished)
    }

    /// Does what it did, each statement as at its time; no other transaction has touched its rows since.
    pub(crate) fn commit(mut self) {
        let ground = Arc::clone(&self.ground);
        let mut state = ground.state();
        for (at, deferred) in std::mem::take(&mut self.done) {
            let since = ground.clock.now().millis_since(at);
            ground.clock.step(-since);
            let right = match deferred {
                Deferred::Insert(row, owed) => {
                    let found = now(ground.memory.insert(vec![row.clone()])).found;
                    state.model.insert(&row, at);
                    same(
                        found.iter().map(|answer| answer.as_ref().ok()),
                        [Some(&owed)].into_iter(),
                    )
                }
                Deferred::Change(change, owed) => {
                    let found = now(ground.memory.change(vec![change.clone()])).found;
                    let _ = state.model.change(&change, at);
                    same(
                        found.iter().map(|answer| answer.as_ref().ok()),
                        [Some(&owed)].into_iter(),
                    )
                }
                Deferred::Finish(step) => {
                    let found = now(ground.memory.advance(std::slice::from_ref(&step)));
                    state.model.advance(&step, at);
                    same(found.iter(), [Guarded::Done].iter())
                }
            };
            ground.clock.step(since);
            ground.told(&mut state, "commit", right);
        }
        // Its locks go with it.
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let mut state = self.ground.state();
        let number = self.number;
        state.rows.retain(|_, holder| *holder != number);
        state.keys.retain(|_, holder| *holder != number);
        drop(state);
        self.ground.freed.notify_waiters();
    }
}
