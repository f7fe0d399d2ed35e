//! How late tasks are, and what keeps failing.

use delayline::store::Page;
use delayline::{Kind, State, Task, Timestamp};

use super::super::Shared;
use super::super::problem::Problem;
use super::wanted::Wanted;
use super::words::Count;
use crate::time::span;

/// A task that is late by no more than this, in ms, is about to start, or to be tried again.
const LATE: i64 = 1_000;
/// So much of an error tells it from others.
const SHOWN: usize = 120;

/// How late tasks of a kind are that have not ended: what waits since its due time, and what fails since the time that its
/// caller wanted.
#[derive(Debug, Default)]
pub(super) struct Lateness {
    /// For how long the first is due that waits for its first attempt, in ms.
    waiting: i64,
    pub(super) failing: Option<Failing>,
}

/// Tasks of a kind whose attempts fail.
#[derive(Debug)]
pub(super) struct Failing {
    /// Those of them that are not due: they wait for their next attempt, or are at it.
    pub(super) away: Count,
    /// How late the oldest is, in ms.
    oldest: i64,
    /// Why its last attempt failed.
    pub(super) error: String,
    pub(super) id: String,
    /// Its key, else its id.
    pub(super) label: String,
    /// Those that fail like it, as a search.
    pub(super) search: String,
}

impl Lateness {
    /// How many tasks are looked at of a kind and state, the first by due time: what is tried again is due soon.
    pub(super) const LOOKED_AT: usize = 16;

    /// Takes in the tasks of a kind and state.
    pub(super) async fn look(
        &mut self,
        app: &Shared,
        kind: &Kind,
        state: State,
        now: Timestamp,
    ) -> Result<(), Problem> {
        let first = Page::new(kind.clone(), state).limit(Self::LOOKED_AT).lean();
        let tasks = app.scheduler.list(&first).await?;
        let are_more = tasks.len() == Self::LOOKED_AT;
        for task in tasks {
            let late = now.millis_since(task.late_since());
            if task.is_failing() {
                let is_away = state == State::Running || task.due_at > now;
                let away = Count {
                    tasks: usize::from(is_away),
                    are_more: is_away && are_more,
                };
                self.add_failing(task, away, late);
            } else if state == State::Scheduled {
                self.waiting = self.waiting.max(late);
            }
        }
        Ok(())
    }

    fn add_failing(&mut self, task: Task, mut away: Count, late: i64) {
        if let Some(failing) = &mut self.failing {
            failing.away.add(away);
            if failing.oldest >= late {
                return;
            }
            away = failing.away;
        }
        self.failing = Some(Failing::of(task, away, late));
    }

    /// How late the oldest is, in ms.
    pub(super) fn oldest(&self) -> i64 {
        let failing = self.failing.as_ref().map_or(0, |failing| failing.oldest);
        self.waiting.max(failing)
    }

    pub(super) fn is_late(&self) -> bool {
        self.oldest() > LATE
    }
}

impl Failing {
    fn of(task: Task, away: Count, oldest: i64) -> Self {
        let id = task.id.to_string();
        let mut error = task.last_error.unwrap_or_default();
        let is_cut = error.len() > SHOWN;
        error.truncate(error.floor_char_boundary(SHOWN));
        let wanted = Wanted {
            kind: Some(task.kind.to_string()),
            error: Some(error.trim().to_owned()).filter(|error| !error.is_empty()),
            ..Wanted::default()
        };
        if is_cut {
            error.push('…');
        }
        Self {
            away,
            oldest,
            error,
            label: task.key.map_or_else(|| id.clone(), |key| key.to_string()),
            id,
            search: wanted.search().finish(),
        }
    }

    pub(super) fn is_late(&self) -> bool {
        self.oldest > LATE
    }

    pub(super) fn late(&self) -> String {
        span(self.oldest)
    }
}
