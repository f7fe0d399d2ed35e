//! Changes of all tasks that match a filter.

use delayline::{Action, Answer, Error, Expect, Kind, Page, Scheduler, State, Task, TaskId, Timestamp};

/// Which tasks: those of one kind and state that are as all else says.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) kind: Kind,
    pub(crate) state: State,
    pub(crate) due_after: Option<Timestamp>,
    pub(crate) due_before: Option<Timestamp>,
    pub(crate) key_prefix: Option<String>,
    /// What the error of the last attempt has in it.
    pub(crate) error: Option<String>,
}

/// How many are read at once, or changed.
pub(crate) const PAGE: usize = 100;

impl Filter {
    /// The tasks that match, by due time, `most` at the most. By the index of kinds, states and due times; all else is looked
    /// at row by row.
    pub(crate) async fn find<T: From<Task>>(
        &self,
        scheduler: &Scheduler,
        most: usize,
    ) -> Result<Vec<T>, Error> {
        let mut page = Page::new(self.kind.clone(), self.state);
        if let Some(time) = self.due_after {
            page = page.due_from(time);
        }
        if let Some(time) = self.due_before {
            page = page.due_before(time);
        }
        let mut matching = Vec::new();
        loop {
            page = page.limit(match self.looks_at_rows() {
                true => PAGE,
                false => PAGE.min(most - matching.len()),
            });
            let found = scheduler.list(&page).await?;
            let is_last = found.len() < page.limit;
            if let Some(last) = found.last() {
                page = page.after(last);
            }
            matching.extend(found.into_iter().filter(|task| self.matches(task)).map(T::from));
            if is_last || matching.len() >= most {
                matching.truncate(most);
                return Ok(matching);
            }
        }
    }

    fn looks_at_rows(&self) -> bool {
        self.key_prefix.is_some() || self.error.is_some()
    }

    fn matches(&self, task: &Task) -> bool {
        let has_prefix = |prefix: &String| {
            task.key
                .as_ref()
                .is_some_and(|key| key.as_str().starts_with(prefix))
        };
        let has_error = |part: &String| task.last_error.as_ref().is_some_and(|error| error.contains(part));
        self.key_prefix.as_ref().is_none_or(has_prefix) && self.error.as_ref().is_none_or(has_error)
    }
}

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
    for batch in matches.chunks(PAGE) {
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
