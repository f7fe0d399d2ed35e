//! Changes of all tasks that match a filter.

use std::time::Duration;

use delayline::store::{Action, Expect};
use delayline::{Answer, Error, State, Task};

use super::filter::PAGE;
use super::{Bounds, Filter, Operations, Position, Refusal, Work};
use crate::reserved;

/// How many are changed in one call of the store.
pub(super) const BATCH: usize = 100;
/// How many are changed within a call before the rest goes on behind it.
const WITHIN: usize = 1_000;
/// How many are looked at before that.
const LOOKS: usize = 10_000;
/// How many bytes the tasks may have that are in memory at once.
pub(crate) const HELD: usize = PAGE << 20;

/// The state of the tasks that an action is about.
pub(crate) fn state_for(action: Action) -> State {
    match action {
        Action::Redrive | Action::Dismiss => State::Dead,
        _ => State::Scheduled,
    }
}

/// Whether a task is in another state after an action, so that the same once more finds the rest.
pub(super) fn ends_the_state(action: Action) -> bool {
    matches!(action, Action::Cancel | Action::Redrive | Action::Dismiss)
}

/// A task that is to be changed, as it was found: one that another caller moves meanwhile is left as it is.
pub(crate) type Match = Position;

impl From<Task> for Match {
    fn from(task: Task) -> Self {
        Self::from(&task)
    }
}

/// How many were answered how.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize, utoipa::ToSchema,
)]
#[schema(as = BulkAnswers)]
pub(crate) struct Answers {
    /// Changed.
    pub(crate) done: usize,
    /// A worker had them by then.
    pub(crate) too_late: usize,
    /// They had ended by then.
    pub(crate) finished: usize,
    /// Another caller had moved them by then, or another live task has the key.
    pub(crate) conflict: usize,
    /// They were not there any more.
    pub(crate) not_found: usize,
    /// The store could not change them, or could not say whether it has.
    #[serde(default)]
    pub(crate) failed: usize,
}

impl Answers {
    pub(crate) fn count(&mut self, answer: &Answer) {
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
        self.failed += more.failed;
    }

    /// How many were answered how, by the words of the answers.
    pub(crate) fn named(&self) -> [(&'static str, usize); 6] {
        [
            ("done", self.done),
            ("too_late", self.too_late),
            ("finished", self.finished),
            ("conflict", self.conflict),
            ("not_found", self.not_found),
            ("failed", self.failed),
        ]
    }

    pub(crate) fn sum(&self) -> usize {
        self.named().iter().map(|(_, count)| count).sum()
    }

    /// Says how many could not be changed, if any.
    pub(crate) fn none_failed(&self) -> Result<(), String> {
        match self.failed {
            0 => Ok(()),
            count => Err(format!(
                "{count} could not be changed, or it is not known whether they were, as the log says; the others are"
            )),
        }
    }
}

/// What came of a change of all that match.
#[derive(Debug)]
pub(crate) enum Changed {
    /// It is done.
    Done {
        /// How many matched, up to the limit.
        matched: usize,
        /// Whether more match than the limit allows.
        more: bool,
        answers: Answers,
    },
    /// These were the first, and the rest is still to be changed.
    Begun(Box<Work>),
}

impl Operations {
    /// Changes tasks that a caller has chosen, of which it may have named any: none is changed where it may not change one.
    /// Says as well of which of them callers may schedule the like.
    pub(crate) async fn change_chosen(
        &self,
        chosen: &[Match],
        action: Action,
    ) -> Result<(Answers, Vec<Match>), Refusal> {
        let (mut seen, mut of_callers) = (Vec::with_capacity(chosen.len()), Vec::new());
        for one in chosen {
            // One that the caller may not see is not there, as by its id.
            if let Some(task) = self.found(one.id.into()).await? {
                self.may_change(&task.kind, action)?;
                seen.push(*one);
                of_callers.extend(reserved::is_of_callers(&task).then_some(*one));
            }
        }
        let mut answers = self.change_found(&seen, action).await?;
        answers.not_found += chosen.len() - seen.len();
        Ok((answers, of_callers))
    }

    /// Changes tasks that were found, a hundred in each call of the store. Where such a call fails, so does all that follows; an
    /// error says that nothing was answered.
    async fn change_found(&self, found: &[Match], action: Action) -> Result<Answers, Error> {
        let mut answers = Answers::default();
        for batch in found.chunks(BATCH) {
            let (came, called) = self.change_batch(batch, action).await;
            answers.add(&came);
            if let Err(error) = called {
                if answers.failed == answers.sum() {
                    return Err(error);
                }
                tracing::warn!(%error, verb = super::name(action), "a change in bulk left the rest out");
                answers.failed += found.len() - answers.sum();
                break;
            }
        }
        Ok(answers)
    }

    /// Changes tasks in one call of the store. One that fails keeps no other from it; an error says that all did.
    pub(super) async fn change_batch(&self, batch: &[Match], action: Action) -> (Answers, Result<(), Error>) {
        let changes = batch
            .iter()
            .map(|task| (task.id.into(), Expect::Due(task.due_at), action));
        let (mut answers, mut first) = (Answers::default(), None);
        for (task, answer) in batch.iter().zip(self.scheduler.change_each(changes).await) {
            match answer {
                Ok(answer) => answers.count(&answer),
                Err(error) => {
                    answers.failed += 1;
                    first.get_or_insert((task.id, error));
                }
            }
        }
        match first {
            Some((_, error)) if answers.failed == batch.len() => return (answers, Err(error)),
            Some((task, error)) => {
                tracing::warn!(%task, %error, verb = super::name(action), "a change in bulk left tasks out; this is the first");
            }
            None => {}
        }
        (answers, Ok(()))
    }

    /// Counts the tasks that an action would change, up to a limit; and says whether there are more.
    pub(crate) async fn count(
        &self,
        filter: &Filter,
        action: Action,
        limit: usize,
    ) -> Result<(usize, bool), Refusal> {
        self.may_change_all(filter, action)?;
        let (found, more) = self.find_some(filter, limit).await?;
        Ok((found.len(), more))
    }

    /// Changes up to `limit` tasks that match. Where more match and what is changed would match again, nothing is changed.
    pub(crate) async fn change_some(
        &self,
        filter: &Filter,
        action: Action,
        limit: usize,
    ) -> Result<Changed, Refusal> {
        self.may_change_all(filter, action)?;
        let (found, more) = self.find_some(filter, limit).await?;
        if more && !ends_the_state(action) {
            let allowed = "more tasks match than this: allowed is a filter by which they all fit, such as a narrower \
                           due_before, or no limit";
            return Err(Refusal::Error(Error::Invalid {
                field: "limit",
                value: limit.to_string(),
                allowed: allowed.to_owned(),
            }));
        }
        let answers = self.change_found(&found, action).await?;
        let matched = found.len();
        Ok(Changed::Done {
            matched,
            more,
            answers,
        })
    }

    /// Changes all that match, if these are few; else nothing yet, as the whole takes long.
    pub(crate) async fn change_all(&self, mut filter: Filter, action: Action) -> Result<Changed, Refusal> {
        self.may_change_all(&filter, action)?;
        let bounds = Bounds::of_many(WITHIN, LOOKS);
        let (found, after) = filter.page(&self.scheduler, None, bounds).await?;
        if let Some(after) = after {
            if action == Action::Redrive {
                // What dies again while this goes on is due later, and is not redriven once more.
                let later = self.store.now().await?.after(Duration::from_millis(1));
                filter.due_before = Some(filter.due_before.map_or(later, |given| given.min(later)));
            }
            return Ok(Changed::Begun(Box::new(Work::new(
                self.clone(),
                filter,
                action,
                found,
                after,
            ))));
        }
        let answers = self.change_found(&found, action).await?;
        let matched = found.len();
        Ok(Changed::Done {
            matched,
            more: false,
            answers,
        })
    }

    fn may_change_all(&self, filter: &Filter, action: Action) -> Result<(), Refusal> {
        let mut kinds = filter.kinds.iter();
        kinds.try_for_each(|kind| self.may_change(kind, action))
    }

    async fn find_some(&self, filter: &Filter, limit: usize) -> Result<(Vec<Match>, bool), Error> {
        let bounds = Bounds::of_many(limit, usize::MAX);
        let (found, after) = filter.page(&self.scheduler, None, bounds).await?;
        Ok((found, after.is_some()))
    }
}
