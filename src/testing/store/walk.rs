//! Walks randomly through the states, beside a small model.

use std::collections::BTreeMap;

use fastrand::Rng;

use super::StoreFixture;
use super::trial::*;
use crate::store::{Claim, Ending, Event, Expect, NewRow, Step, Verb, When};
use crate::{Answer, Scheduled, State, TaskId};

const WALKS: u64 = 4;
const STEPS: u64 = 150;
const KEYS: usize = 3;

/// A row as the model has it. Every time is either past or far ahead.
#[derive(Clone, Debug, PartialEq)]
struct Row {
    key: usize,
    state: State,
    version: u64,
    attempt: u32,
    hop: u32,
    due: bool,
    overdue: bool,
    started: bool,
}

impl Row {
    fn enter(&mut self, state: State) {
        self.state = state;
        self.version += 1;
        self.started = false;
    }

    /// Ends its lease if that has come; says whether it had.
    fn end_lease(&mut self) -> bool {
        let ends = self.state == State::Running && self.overdue;
        if ends {
            self.attempt -= u32::from(!self.started);
            self.enter(State::Scheduled);
        }
        ends
    }

    fn schedule_anew(&mut self, due: bool, overdue: bool) {
        self.enter(State::Scheduled);
        (self.attempt, self.hop) = (0, 0);
        (self.due, self.overdue) = (due, overdue);
    }

    fn claim(&mut self, overdue: bool) {
        self.enter(State::Running);
        self.attempt += 1;
        self.overdue = overdue;
    }
}

/// A random walk over a trial and its model.
struct Walk<'a> {
    trial: Trial<'a>,
    rng: Rng,
    rows: BTreeMap<TaskId, Row>,
}

pub(super) async fn every_transition_adds_one_to_the_version(fixture: &dyn StoreFixture) {
    for seed in 0..WALKS {
        let mut walk = Walk {
            trial: Trial::new(fixture).await,
            rng: Rng::with_seed(seed),
            rows: BTreeMap::new(),
        };
        for step in 1..=STEPS {
            let what = walk.step(step).await;
            // An error stays visible, and reading all rows takes longer than a step.
            if step % 3 == 0 {
                walk.compare(&format!("walk {seed}, up to step {step}: {what}"))
                    .await;
            }
        }
    }
}

impl Walk<'_> {
    async fn compare(&self, what: &str) {
        let mut found = 0;
        for state in State::ALL {
            for task in self.trial.list(KIND, state, usize::MAX).await {
                let row = &self.rows[&task.id];
                let as_found = (task.state, task.version, task.attempt, task.hop);
                assert_eq!(
                    as_found,
                    (row.state, row.version, row.attempt, row.hop),
                    "{what}: {task:?}"
                );
                found += 1;
            }
        }
        assert_eq!(found, self.rows.len(), "{what}");
    }

    /// One step, taken by both; says which.
    async fn step(&mut self, step: u64) -> &'static str {
        let Some((id, version)) = self.pick().filter(|_| self.rng.u8(..6) > 0) else {
            self.insert(step).await;
            return "insert";
        };
        match self.rng.u8(..9) {
            0 | 1 => {
                self.arrive(id, version).await;
                "arrive"
            }
            2 => {
                self.hop(id, version).await;
                "hop"
            }
            3 | 4 => {
                self.settle(id, version).await;
                "settle"
            }
            5 => {
                self.renew(id, version).await;
                "renew"
            }
            6 => {
                self.ready().await;
                "ready"
            }
            7 => {
                self.sweep().await;
                "sweep"
            }
            _ => {
                self.change(id, version).await;
                "change"
            }
        }
    }

    /// A row, and its version or, one time in four, another.
    fn pick(&mut self) -> Option<(TaskId, u64)> {
        // Old rows are mostly finished; the last ones have the most to do.
        let (&id, row) = self.rows.iter().rev().nth(self.rng.usize(..6))?;
        let version = match self.rng.u8(..8) {
            0 => row.version - 1,
            1 => row.version + 1,
            _ => row.version,
        };
        Some((id, version))
    }

    fn live(&self, key: usize) -> Option<TaskId> {
        let mut rows = self.rows.iter();
        rows.find(|(_, row)| row.key == key && row.state.is_live())
            .map(|(&id, _)| id)
    }

    async fn insert(&mut self, step: u64) {
        let (due_now, overdue_now) = (self.rng.bool(), self.rng.bool());
        let key = self.rng.usize(..KEYS);
        let row = NewRow {
            due: When::After(if due_now { NONE } else { LONG }),
            overdue_after: if overdue_now { NONE } else { LONG },
            replace: self.rng.bool(),
            ..due(step).named(&key.to_string())
        };
        let replace = row.replace;
        let answer = self.trial.insert(vec![row]).await.remove(0);
        let Some(live) = self.live(key) else {
            assert!(matches!(answer, Scheduled::New(_)), "{answer:?}");
            let row = Row {
                key,
                state: State::Scheduled,
                version: 1,
                attempt: 0,
                hop: 0,
                due: due_now,
                overdue: overdue_now,
                started: false,
            };
            self.rows.insert(id(step), row);
            return;
        };
        let row = self.rows.get_mut(&live).expect("a live row is a row");
        row.end_lease();
        assert_eq!(answer.task().id, live);
        match (row.state, replace) {
            (State::Running, _) => assert!(matches!(answer, Scheduled::Running(_))),
            (_, false) => assert!(matches!(answer, Scheduled::Existing(_))),
            (_, true) => {
                assert!(matches!(answer, Scheduled::Replaced(_)));
                row.schedule_anew(due_now, overdue_now);
            }
        }
    }

    async fn change(&mut self, id: TaskId, version: u64) {
        let due_now = self.rng.bool();
        let due = When::After(if due_now { NONE } else { LONG });
        let verb = match self.rng.u8(..6) {
            0 => Verb::Reschedule {
                due,
                overdue_after: LONG,
            },
            5 => Verb::Edit {
                payload: version.to_string().into_bytes(),
                due: None,
                overdue_after: LONG,
            },
            1 => Verb::RunNow { overdue_after: NONE },
            2 => Verb::Redrive { overdue_after: NONE },
            3 => Verb::Dismiss,
            _ => Verb::Cancel,
        };
        let expect = Expect::Version(version);
        let answer = self.trial.change_if(id, verb.clone(), expect).await;
        let taken = self.live(self.rows[&id].key).is_some();
        // Perhaps the other row of the key has lost its claim by it, and stays live.
        let row = self.rows.get_mut(&id).expect("a row was picked");
        row.end_lease();
        let met = row.version == version;
        let redrive = matches!(verb, Verb::Redrive { .. });
        let of_dead = redrive || verb == Verb::Dismiss;
        match row.state {
            State::Scheduled | State::Running if of_dead => assert!(matches!(answer, Answer::Conflict(_))),
            State::Running => assert!(matches!(answer, Answer::TooLate(_))),
            State::Done | State::Cancelled => assert!(matches!(answer, Answer::Finished(_))),
            State::Dead if !of_dead => assert!(matches!(answer, Answer::Finished(_))),
            State::Dead if redrive && taken => assert!(matches!(answer, Answer::Conflict(_))),
            _ if !met => assert!(matches!(answer, Answer::Conflict(_))),
            _ => {
                assert!(answer.is_done(), "{answer:?}");
                match verb {
                    Verb::Reschedule { .. } => row.schedule_anew(due_now, false),
                    Verb::RunNow { .. } | Verb::Redrive { .. } => row.schedule_anew(true, true),
                    Verb::Cancel | Verb::Dismiss => row.enter(State::Cancelled),
                    Verb::Edit { .. } => {
                        row.enter(State::Scheduled);
                        row.overdue = false;
                    }
                }
            }
        }
    }

    async fn arrive(&mut self, id: TaskId, version: u64) {
        let row = self.rows.get_mut(&id).expect("a row was picked");
        let (claim, ends) = [(any(), false), (fleeting(), true)][self.rng.usize(..2)].clone();
        let mut looked_for = wake(&self.trial.get(id).await);
        looked_for.version = version;
        let looked = self.trial.arrive(&[looked_for], &claim).await;
        let found = (looked.stale, looked.early.len(), looked.claimed.len());
        if row.state != State::Scheduled || row.version != version {
            assert_eq!(found, (1, 0, 0));
        } else if !row.due {
            assert_eq!(found, (0, 1, 0));
        } else {
            assert_eq!(found, (0, 0, 1));
            row.claim(ends);
        }
    }

    async fn hop(&mut self, id: TaskId, version: u64) {
        let overdue = self.rng.bool();
        let overdue_after = if overdue { NONE } else { LONG };
        let taken = self.trial.advance(&[Step::hop(id, version, overdue_after)]).await;
        let row = self.rows.get_mut(&id).expect("a row was picked");
        let valid = row.state == State::Scheduled && row.version == version;
        assert_eq!(taken, [valid]);
        if valid {
            row.enter(State::Scheduled);
            row.hop += 1;
            row.overdue = overdue;
        }
    }

    async fn settle(&mut self, id: TaskId, version: u64) {
        let ending = endings()[self.rng.usize(..9)].clone();
        let event = Event::End {
            ending: ending.clone(),
        };
        let ended = self
            .trial
            .advance(&[Step {
                id,
                version,
                event,
                note: Default::default(),
                claimed: None,
            }])
            .await;
        let row = self.rows.get_mut(&id).expect("a row was picked");
        let valid = row.state == State::Running && row.version == version;
        assert_eq!(ended, [valid]);
        if !valid {
            return;
        }
        let give_back = |row: &mut Row| row.attempt = row.attempt.saturating_sub(1);
        match ending {
            Ending::Done => row.enter(State::Done),
            Ending::Dead { give_back: gives, .. } => {
                row.enter(State::Dead);
                if gives {
                    give_back(row);
                }
            }
            Ending::Again { .. } | Ending::Moved { .. } => row.schedule_anew(false, false),
            Ending::Cancelled => {
                row.enter(State::Cancelled);
                give_back(row);
            }
            Ending::Retry { .. } | Ending::Snooze { .. } => {
                row.enter(State::Scheduled);
                if matches!(ending, Ending::Snooze { .. }) {
                    give_back(row);
                }
                (row.due, row.overdue) = (false, false);
            }
            Ending::Release => {
                row.enter(State::Scheduled);
                give_back(row);
                row.overdue = true;
            }
        }
    }

    async fn renew(&mut self, id: TaskId, version: u64) {
        let ends = self.rng.bool();
        let lease = if ends { NONE } else { LONG };
        let started = self.rng.bool();
        let renewed = self.trial.renew_as(&[(id, version)], lease, started).await;
        let row = self.rows.get_mut(&id).expect("a row was picked");
        let valid = row.state == State::Running && row.version == version;
        assert_eq!(renewed, [valid]);
        if valid {
            row.overdue = ends;
            row.started |= started;
        }
    }

    async fn ready(&mut self) {
        let ends = self.rng.bool();
        let lease = if ends { NONE } else { LONG };
        let claimed = self.trial.ready(&Claim { lease, ..any() }).await;
        let mut claimed = ids(&claimed);
        claimed.sort();
        let mut expected = Vec::new();
        for (&id, row) in &mut self.rows {
            if row.state == State::Scheduled && row.due {
                row.claim(ends);
                expected.push(id);
            }
        }
        assert_eq!(claimed, expected);
    }

    async fn sweep(&mut self) {
        let handles = self.rng.bool();
        let claim = if handles { any() } else { nothing() };
        let first = self.trial.sweep(&claim, MANY, LONG).await;
        // The second may find a row whose lease had ended.
        let second = self.trial.sweep(&claim, MANY, LONG).await;
        let mut early = 0;
        let mut expired = 0;
        for row in self.rows.values_mut().filter(|row| row.overdue) {
            expired += usize::from(row.end_lease());
            if row.state == State::Scheduled && row.due && handles {
                row.claim(false);
            } else if row.state == State::Scheduled && !row.due {
                row.overdue = false;
                early += 1;
            }
        }
        assert_eq!(first.expired + second.expired, expired);
        assert_eq!(first.early.len() + second.early.len(), early);
    }
}
