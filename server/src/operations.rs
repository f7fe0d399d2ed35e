//! What is done with the tasks of a store. The terminal, the HTTP interface and the pages have the same operations, each with
//! a face of its own.

mod edit;
mod explained_view;
mod filter;
mod forecast;
mod health;
mod jobs;
mod kinds;
mod matching;
mod refusal;
mod rerun;
mod task_view;
mod work;

use std::fmt;
use std::sync::Arc;

use delayline::history::Explanation;
use delayline::store::{Action, Expect, Store, Target};
use delayline::{Answer, Kind, Scheduler, State, Task};

pub(crate) use self::edit::Edit;
pub(crate) use self::explained_view::{EntryView, ExplainedView, Standing};
pub(crate) use self::filter::{Bounds, Filter, KINDS, LEAN, Position};
pub(crate) use self::forecast::{Forecast, ForecastSpan, SPANS};
pub(crate) use self::health::{Health, Part};
pub(crate) use self::jobs::{Job, JobState, JobView, Jobs};
pub(crate) use self::kinds::{KindView, PausedView};
pub(crate) use self::matching::{Answers, Changed, HELD, Match, state_for};
pub(crate) use self::refusal::Refusal;
pub(crate) use self::rerun::{UNDO, undo_until};
pub(crate) use self::task_view::{StateName, TaskView, given};
pub(crate) use self::work::{Follower, Work};
use crate::reason::Reason;
use crate::reserved;

/// The operations of one caller on the tasks of a store.
#[derive(Clone)]
pub(crate) struct Operations {
    scheduler: Scheduler,
    store: Arc<dyn Store>,
    /// The name of the caller in histories.
    actor: String,
    /// Which kinds the caller may see and change; `None` stands for all.
    scope: Option<Arc<dyn Scope>>,
}

/// The kinds that a caller may see and change.
pub(crate) trait Scope: Send + Sync {
    fn has(&self, kind: &Kind) -> bool;

    /// Says why it does not have a kind.
    fn refusal(&self, kind: &Kind) -> String;
}

impl Operations {
    /// Acts for a caller that may see and change every kind.
    pub(crate) fn new(scheduler: &Scheduler, store: Arc<dyn Store>, actor: String) -> Self {
        Self {
            scheduler: scheduler.by(&actor),
            store,
            actor,
            scope: None,
        }
    }

    /// Acts within a scope.
    pub(crate) fn within(self, scope: Arc<dyn Scope>) -> Self {
        Self {
            scope: Some(scope),
            ..self
        }
    }

    /// Notes a reason in the history of each task that is changed.
    pub(crate) fn because(self, reason: Option<Reason>) -> Self {
        match reason {
            Some(reason) => Self {
                scheduler: reason.given_to(&self.scheduler),
                ..self
            },
            None => self,
        }
    }

    pub(crate) fn actor(&self) -> &str {
        &self.actor
    }

    /// Whether the caller may see and change tasks of a kind.
    pub(crate) fn reaches(&self, kind: &Kind) -> bool {
        self.scope.as_ref().is_none_or(|scope| scope.has(kind))
    }

    /// Refuses a kind that the caller may not see.
    pub(crate) fn reach(&self, kind: &Kind) -> Result<(), Refusal> {
        match &self.scope {
            Some(scope) if !scope.has(kind) => Err(Refusal::OtherKinds(scope.refusal(kind))),
            _ => Ok(()),
        }
    }

    /// Refuses to change tasks of a kind that the caller may not change so.
    pub(crate) fn may_change(&self, kind: &Kind, action: Action) -> Result<(), Refusal> {
        reserved::check_change(kind, action == Action::Dismiss)?;
        self.reach(kind)
    }

    /// Finds a task: by key the live one, else the one that was made last.
    pub(crate) async fn find(&self, target: Target) -> Result<Task, Refusal> {
        self.found(target).await?.ok_or(Refusal::NoTask)
    }

    /// The same, where it need not be there.
    pub(crate) async fn found(&self, target: Target) -> Result<Option<Task>, Refusal> {
        self.reach_target(&target)?;
        let task = self.scheduler.find(target).await?;
        Ok(task.filter(|task| self.reaches(&task.kind)))
    }

    /// Explains where a task stands, what happened to it, and what comes next.
    pub(crate) async fn explain(&self, target: Target) -> Result<Explanation, Refusal> {
        self.reach_target(&target)?;
        let explained = self.scheduler.explain(target).await?;
        explained
            .filter(|explained| self.reaches(&explained.task.kind))
            .ok_or(Refusal::NoTask)
    }

    /// Refuses a target of a kind that the caller may not see. Of an id the kind is not known yet.
    fn reach_target(&self, target: &Target) -> Result<(), Refusal> {
        match target {
            Target::Key(kind, _) => self.reach(kind),
            Target::Id(_) => Ok(()),
        }
    }

    /// Changes one task, if it is as `expect` says.
    pub(crate) async fn change(
        &self,
        target: Target,
        expect: Expect,
        action: Action,
    ) -> Result<Answer, Refusal> {
        match &target {
            Target::Key(kind, _) => self.may_change(kind, action)?,
            Target::Id(_) => match self.found(target.clone()).await? {
                Some(task) => self.may_change(&task.kind, action)?,
                None => return Ok(Answer::NotFound),
            },
        }
        let scheduler = &self.scheduler;
        Ok(match action {
            // From the time that it has, which is not known yet.
            Action::Shift(by) => scheduler.shift_if(target, expect, by).await?,
            action => {
                let answers = scheduler.change_each([(target, expect, action)]).await;
                answers.into_iter().next().unwrap_or(Ok(Answer::NotFound))?
            }
        })
    }

    /// Lists the tasks that match, by due time and id, after a position and within bounds; with the position after which the
    /// list goes on, if it does.
    pub(crate) async fn list<T: From<Task>>(
        &self,
        filter: &Filter,
        after: Option<Position>,
        bounds: Bounds,
    ) -> Result<(Vec<T>, Option<Position>), Refusal> {
        filter.kinds.iter().try_for_each(|kind| self.reach(kind))?;
        Ok(filter.page(&self.scheduler, after, bounds).await?)
    }
}

impl fmt::Debug for Operations {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operations")
            .field("actor", &self.actor)
            .finish_non_exhaustive()
    }
}

/// How a state is called, as over HTTP.
pub(crate) fn state_name(state: State) -> &'static str {
    match state {
        State::Scheduled => "scheduled",
        State::Running => "running",
        State::Done => "done",
        State::Dead => "dead",
        State::Cancelled => "cancelled",
    }
}

/// The name of what is done with tasks, as paths, metrics and logs have it.
pub(crate) fn name(action: Action) -> &'static str {
    match action {
        Action::Cancel => "cancel",
        Action::Dismiss => "dismiss",
        Action::Redrive => "redrive",
        Action::Reschedule(_) => "reschedule",
        Action::RunNow => "run",
        Action::Shift(_) => "shift",
        _ => "change",
    }
}
