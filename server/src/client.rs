//! What commands do with tasks: in a store by themselves, or by asking a server.

mod asking;
mod bulk;
mod server;

use delayline::store::{Action, Expect, Target, When};
use delayline::{Answer, Kind, Shift, State, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub(crate) use self::server::Server;
use crate::Failure;
use crate::operations::{
    Bounds, Edit, ExplainedView, Filter, Forecast, KINDS, KindView, Operations, PausedView, Refusal,
    TaskView, name,
};
use crate::reason::Reason;
use crate::span::Span;

/// How many tasks and kinds a page of a server has.
const PAGE: usize = 500;
/// How many tasks are looked at where not all are.
const LOOKS: usize = 10_000;

/// The tasks of a store, or of a server.
#[derive(Debug)]
pub(crate) enum Client {
    Store(Operations),
    Server(Server),
}

/// The outcome of a change of one task.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct ChangeOutcome {
    /// In a word.
    pub(crate) answer: String,
    /// As it is now, without its payload.
    pub(crate) task: Option<TaskView>,
}

impl ChangeOutcome {
    fn of(answer: &Answer) -> Self {
        Self {
            answer: answer.word().to_owned(),
            task: answer.task().cloned().map(TaskView::without_payload),
        }
    }

    fn without_payload(self) -> Self {
        Self {
            task: self.task.map(TaskView::lean),
            ..self
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.answer.as_str(), "done" | "new")
    }
}

/// What stands in the place of a kind where a task is named by its id.
const BY_ID: &str = "id";

/// The parts of the path of a task.
fn path_of(target: &Target) -> Result<Vec<String>, Failure> {
    match target {
        Target::Id(id) => Ok(vec!["tasks".to_owned(), BY_ID.to_owned(), id.to_string()]),
        Target::Key(kind, _) if kind.as_str() == BY_ID => Err(server::no_place(BY_ID)),
        Target::Key(kind, key) => Ok(vec!["tasks".to_owned(), kind.to_string(), key.to_string()]),
    }
}

/// What the body of a verb says of what is done.
fn body_of(action: Action) -> Map<String, Value> {
    let (name, value) = match action {
        Action::Reschedule(When::After(delay)) => ("after", Span(delay).to_string()),
        Action::Reschedule(When::At(time)) => ("at", time.to_string()),
        Action::Shift(Shift::Later(by)) => ("by", format!("+{}", Span(by))),
        Action::Shift(Shift::Earlier(by)) => ("by", format!("-{}", Span(by))),
        _ => return Map::new(),
    };
    Map::from_iter([(name.to_owned(), value.into())])
}

fn because(mut body: Map<String, Value>, reason: Option<&Reason>) -> Map<String, Value> {
    body.extend(reason.map(|reason| ("reason".to_owned(), reason.to_string().into())));
    body
}

fn there<T>(found: Option<T>) -> Result<T, Failure> {
    found.ok_or_else(|| Refusal::NoTask.into())
}

impl Client {
    pub(crate) async fn find(&self, target: Target) -> Result<TaskView, Failure> {
        match self {
            Self::Store(operations) => Ok(operations.find(target).await?.into()),
            Self::Server(server) => there(server.task(&target, None).await?),
        }
    }

    /// The same, where it need not be there.
    pub(crate) async fn found(&self, target: Target) -> Result<Option<TaskView>, Failure> {
        match self {
            Self::Store(operations) => Ok(operations.found(target).await?.map(TaskView::from)),
            Self::Server(server) => server.task(&target, None).await,
        }
    }

    /// Whether its tasks can be named by their keys.
    pub(crate) fn names_tasks_of(&self, kind: &str) -> bool {
        match self {
            Self::Store(_) => true,
            Self::Server(_) => kind != BY_ID && !server::is_step(kind),
        }
    }

    pub(crate) async fn explain(&self, target: Target) -> Result<ExplainedView, Failure> {
        match self {
            Self::Store(operations) => Ok(operations.explain(target).await?.into()),
            Self::Server(server) => there(server.task(&target, Some("explain=1")).await?),
        }
    }

    pub(crate) async fn change(
        &self,
        target: Target,
        action: Action,
        reason: Option<Reason>,
    ) -> Result<ChangeOutcome, Failure> {
        match self {
            Self::Store(operations) => {
                let operations = operations.clone().because(reason);
                let answer = operations.change(target, Expect::Anything, action).await?;
                Ok(ChangeOutcome::of(&answer))
            }
            Self::Server(server) => {
                let body = because(body_of(action), reason.as_ref());
                server.verb(&target, name(action), &body).await
            }
        }
    }

    pub(crate) async fn edit(
        &self,
        target: Target,
        edit: Edit,
        reason: Option<Reason>,
    ) -> Result<ChangeOutcome, Failure> {
        match self {
            Self::Store(operations) => {
                let operations = operations.clone().because(reason);
                Ok(ChangeOutcome::of(
                    &operations.edit(target, Expect::Anything, edit).await?,
                ))
            }
            Self::Server(server) => {
                let body = edit
                    .due
                    .map_or_else(Map::new, |due| body_of(Action::Reschedule(due)));
                let body = because(body, reason.as_ref());
                server.edit(&target, edit.payload, body).await
            }
        }
    }

    pub(crate) async fn rerun(
        &self,
        target: Target,
        reason: Option<Reason>,
    ) -> Result<ChangeOutcome, Failure> {
        match self {
            Self::Store(operations) => {
                let answer = operations.rerun(target, reason).await?;
                let outcome = ChangeOutcome::of(&answer);
                let answer = if answer.is_done() {
                    "new".to_owned()
                } else {
                    outcome.answer
                };
                Ok(ChangeOutcome { answer, ..outcome })
            }
            Self::Server(server) => {
                let body = because(Map::new(), reason.as_ref());
                server.verb(&target, "rerun", &body).await
            }
        }
    }

    /// Lists tasks that match, by due time, up to `limit`; without a kind those of all. Says whether there may be more: if not
    /// all are to be looked at, 10,000 are.
    pub(crate) async fn list(
        &self,
        filter: &Filter,
        limit: usize,
        all: bool,
    ) -> Result<(Vec<TaskView>, bool), Failure> {
        match self {
            Self::Store(operations) => {
                let mut filter = filter.clone();
                if filter.kinds.is_empty() {
                    filter.kinds = operations.kinds_in(filter.state, None, KINDS + 1).await?;
                    if filter.kinds.len() > KINDS {
                        return Err(Failure::Argument(format!(
                            "there are tasks of more than {KINDS} kinds in this state: allowed is one of them"
                        )));
                    }
                }
                let looks = if all { usize::MAX } else { LOOKS };
                let bounds = Bounds {
                    payloads: Some(usize::MAX),
                    ..Bounds::of_many(limit, looks)
                };
                let (tasks, after) = operations.list(&filter, None, bounds).await?;
                Ok((tasks, after.is_some()))
            }
            Self::Server(server) => server.list(filter, limit, all).await,
        }
    }

    /// The kinds of which there are tasks, or which are paused, by name: up to `limit`.
    pub(crate) async fn kinds(&self, limit: usize) -> Result<Vec<KindView>, Failure> {
        match self {
            Self::Store(operations) => Ok(operations.kinds(None, limit).await?),
            Self::Server(server) => {
                server
                    .pages("kinds", limit, PAGE, |kind: &KindView| &kind.kind)
                    .await
            }
        }
    }

    pub(crate) async fn pause(
        &self,
        kind: &Kind,
        until: Option<Timestamp>,
        reason: &str,
    ) -> Result<PausedView, Failure> {
        match self {
            Self::Store(operations) => Ok(operations.pause(kind, until, reason).await?),
            Self::Server(server) => {
                let until = until.map(|until| until.to_string());
                let body = json!({"until": until, "reason": reason});
                server.kind(kind, "pause", &body).await
            }
        }
    }

    /// Says whether it was paused.
    pub(crate) async fn resume(&self, kind: &Kind) -> Result<bool, Failure> {
        #[derive(Deserialize)]
        struct Resumed {
            was_paused: bool,
        }
        match self {
            Self::Store(operations) => Ok(operations.resume(kind).await?),
            Self::Server(server) => {
                let Resumed { was_paused } = server.kind(kind, "resume", &json!({})).await?;
                Ok(was_paused)
            }
        }
    }

    /// How many tasks are due soon, of these kinds; else of each of which there are scheduled ones.
    pub(crate) async fn forecast(&self, mut kinds: Vec<Kind>) -> Result<Vec<Forecast>, Failure> {
        match self {
            Self::Store(operations) => {
                if kinds.is_empty() {
                    kinds = operations.kinds_in(State::Scheduled, None, usize::MAX).await?;
                }
                Ok(operations.forecast(kinds).await?)
            }
            Self::Server(server) => server.forecast(&kinds).await,
        }
    }
}
