//! Changes of all tasks that match a filter.

use delayline::store::{Action, Expect};
use delayline::{Answer, Error, Scheduler, State, Task, TaskId, Timestamp};

use crate::filter::Position;

/// How many are changed at once.
pub(crate) const BATCH: usize = 100;

/// The state of the tasks that an action is about.
pub(crate) fn state_for(action: Action) -> State {
    match action {
        Action::Redrive | Action::Dismiss => State::Dead,
        _ => State::Scheduled,
    }
}

/// Whether a task is in another state after an action, so that the same once more finds the rest.
pub(crate) fn ends_the_state(action: Action) -> bool {
    matches!(action, Action::Cancel | Action::Redrive | Action::Dismiss)
}

/// A task that is to be changed, as it was found: one that somebody moves meanwhile is left to him.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Match {
    id: TaskId,
    due_at: Timestamp,
}

impl Match {
    pub(crate) fn id(&self) -> TaskId {
        self.id
    }
}

impl From<Position> for Match {
    fn from((due_at, id): Position) -> Self {
        Self { id, due_at }
    }
}

impl From<Task> for Match {
    fn from(task: Task) -> Self {
        Self {
            id: task.id,
            due_at: task.due_at,
        }
    }
}

/// How many were answered how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[schema(as = BulkAnswers)]
pub(crate) struct Answers {
    /// Changed.
    pub(crate) done: usize,
    /// A worker had them by then.
    pub(crate) too_late: usize,
    /// They had ended by then.
    pub(crate) finished: usize,
    /// Somebody else had moved them by then, or another live task has the key.
    pub(crate) conflict: usize,
    /// They were not there any more.
    pub(crate) not_found: usize,
}

impl Answers {
    fn count(&mut self, answer: &Answer) {
        *match answer {
            Answer::Done(_) => &mut self.done,
            Answer::TooLate(_) => &mut self.too_late,
            Answer::Finished(_) => &mut self.finished,
            Answer::Conflict(_) => &mut self.conflict,
            Answer::NotFound => &mut self.not_found,
        } += 1;
    }

    pub(crate) fn add(&mut self, more: &Self) {
        self.done += more.done;
        self.too_late += more.too_late;
        self.finished += more.finished;
        self.conflict += more.conflict;
        self.not_found += more.not_found;
    }

    pub(crate) fn sum(&self) -> usize {
        self.done + self.too_late + self.finished + self.conflict + self.not_found
    }
}

/// Changes these tasks, a hundred in each call of the store, and tells after each how far it has come.
pub(crate) async fn change(
    scheduler: &Scheduler,
    matches: &[Match],
    action: Action,
    mut told: impl FnMut(&Answers),
) -> Result<Answers, Error> {
    let mut answers = Answers::default();
    for batch in matches.chunks(BATCH) {
        let changes = batch
            .iter()
            .map(|task| (task.id.into(), Expect::Due(task.due_at), action));
        for answer in scheduler.change_each(changes).await {
            answers.count(&answer?);
        }
        told(&answers);
    }
    Ok(answers)
}
