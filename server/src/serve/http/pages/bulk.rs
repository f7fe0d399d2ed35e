//! Changes of many tasks: first how many they would be, then the change, and what came of it.

use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use delayline::store::Action;
use delayline::{Kind, Timestamp};
use url::form_urlencoded;

use super::super::Shared;
use super::super::bulk;
use super::super::problem::Problem;
use super::fields::Fields;
use super::frame::{Frame, Tab, go_to, page};
use super::tasks::{Wanted, name};
use super::to::action;
use super::visitor::Visitor;
use super::words::{COUNTED, Count, Moment};
use crate::digits::grouped;
use crate::operations::{Answers, Bounds, Changed, HELD, JobView, Match, Operations, state_for};
use crate::time::{Time, now};

/// How many tasks are looked at to count those that match, where no index does.
const LOOKS: usize = 2_000;

pub(super) fn held(_: &Request) -> usize {
    HELD
}

/// What is to be done with many tasks.
struct Verb {
    /// As a form has it.
    field: String,
    action: Action,
    /// Where to they are moved, as it was written.
    to: Option<String>,
}

impl Verb {
    fn of(fields: &Fields) -> Result<Self, Problem> {
        let field = fields.one("verb").unwrap_or_default();
        let action = action(field, fields)?.ok_or_else(|| {
            let allowed = "allowed are cancel, run, redrive, dismiss and move";
            Problem::invalid("verb", field, allowed)
        })?;
        let to = fields.one("to").filter(|_| field == "move");
        Ok(Self {
            field: field.to_owned(),
            action,
            to: to.map(str::to_owned),
        })
    }

    /// In words, before and after how many there are.
    fn words(&self) -> (&'static str, String) {
        let to = self.to.as_deref().unwrap_or_default();
        match self.action {
            Action::Cancel => ("Cancel", String::new()),
            Action::RunNow => ("Run", " now".to_owned()),
            Action::Redrive => ("Redrive", String::new()),
            Action::Dismiss => ("Dismiss", String::new()),
            Action::Shift(_) => ("Move", format!(", each by {to}")),
            _ => ("Move", format!(" to {to}")),
        }
    }
}

/// Which tasks are meant.
enum Which {
    Chosen(Vec<Match>),
    /// Those that match, with due times as of a moment.
    All(Box<Wanted>, Timestamp),
}

impl Which {
    /// Of a form that has asked before, or now.
    fn of(operations: &Operations, fields: &Fields, verb: &Verb) -> Result<Self, Problem> {
        if fields.one("which") != Some("all") {
            let chosen = fields.all("task").map(str::parse);
            let chosen: Vec<Match> = chosen.collect::<Result<_, _>>()?;
            return match chosen.is_empty() {
                true => Err(Problem::invalid(
                    "which",
                    "chosen",
                    "no task is chosen: go back, and choose some, or all that match",
                )),
                false => Ok(Self::Chosen(chosen)),
            };
        }
        let wanted = Wanted {
            state: Some(state_for(verb.action)),
            ..Wanted::of(fields)?
        };
        let Some(kind) = &wanted.kind else {
            let allowed = "all that match are changed of one kind at a time: go back, and choose a kind";
            return Err(Problem::invalid("kind", "", allowed));
        };
        operations.may_change(&Kind::from(kind.as_str()), verb.action)?;
        let asked = fields.one("asked").and_then(|asked| asked.parse().ok());
        let asked = asked.map_or_else(now, Timestamp::from_millis);
        Ok(Self::All(Box::new(wanted), asked))
    }
}

#[derive(Debug, Template)]
#[template(path = "bulk_check.html")]
struct CheckPage {
    frame: Frame,
    /// What is to be done, with how many.
    title: String,
    /// Which they are.
    of: Vec<(&'static str, String)>,
    note: Option<&'static str>,
    is_none: bool,
    button: String,
    fields: Vec<(String, String)>,
    back: String,
}

/// `GET /bulk/check`
pub(super) async fn check(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    fields: Fields,
) -> Result<Response, Problem> {
    let verb = Verb::of(&fields)?;
    let operations = visitor.caller.operations(&app);
    let mut kept = vec![("verb".to_owned(), verb.field.clone())];
    kept.extend(verb.to.clone().map(|to| ("to".to_owned(), to)));
    let (before, after) = verb.words();
    let (count, at_least, of, back) = match Which::of(&operations, &fields, &verb)? {
        Which::Chosen(chosen) => {
            let tasks = fields.all("task");
            kept.extend(tasks.map(|task| ("task".to_owned(), task.to_owned())));
            let count = Count {
                tasks: chosen.len(),
                are_more: false,
            };
            (count, false, Vec::new(), String::new())
        }
        Which::All(wanted, asked) => {
            let (count, at_least) = matching(&app, &operations, &wanted, asked).await?;
            let search = wanted.search().finish();
            kept.push(("which".to_owned(), "all".to_owned()));
            kept.push(("asked".to_owned(), asked.as_millis().to_string()));
            kept.extend(form_urlencoded::parse(search.as_bytes()).into_owned());
            (count, at_least, conditions(&wanted, asked), search)
        }
    };
    let tasks = match (count.tasks, count.are_more) {
        (1, false) => "1 task".to_owned(),
        _ => format!("{count} tasks"),
    };
    page(&CheckPage {
        frame: Frame::new(&app, Tab::Tasks, Some(visitor)),
        title: format!("{before} {tasks}{after}?"),
        of,
        note: at_least.then_some(
            "Only the first 2,000 were looked at, and there are more: all that match will be changed.",
        ),
        is_none: count.is_zero() && !at_least,
        button: format!("{before} {tasks}"),
        fields: kept,
        back,
    })
}

/// How many match, and whether this was found by looking at some of them only.
async fn matching(
    app: &Shared,
    operations: &Operations,
    wanted: &Wanted,
    asked: Timestamp,
) -> Result<(Count, bool), Problem> {
    let kind = Kind::from(wanted.kind.as_deref().unwrap_or_default());
    kind.check()?;
    if wanted.q.is_none() && wanted.error.is_none() {
        let span = match wanted.due_within() {
            Some(seconds) => Duration::from_secs(seconds),
            None => Duration::MAX,
        };
        let counted = app
            .store
            .due_within(&kind, wanted.state(), &[span], COUNTED)
            .await?;
        return Ok((Count::bounded(counted.found.iter().sum(), COUNTED), false));
    }
    let filter = wanted.filter(vec![kind], asked);
    let bounds = Bounds::of_many(COUNTED, LOOKS);
    let (found, next): (Vec<Match>, _) = operations.list(&filter, None, bounds).await?;
    let count = Count {
        tasks: found.len(),
        are_more: next.is_some(),
    };
    Ok((count, next.is_some()))
}

/// What tasks have in common that match.
fn conditions(wanted: &Wanted, asked: Timestamp) -> Vec<(&'static str, String)> {
    let mut of = vec![("State", name(wanted.state()))];
    of.extend(wanted.kind.clone().map(|kind| ("Kind", kind)));
    of.extend(wanted.q.clone().map(|q| ("Key begins with", q)));
    of.extend(wanted.error.clone().map(|error| ("Last error has", error)));
    if let Some(seconds) = wanted.due_within() {
        let before = asked.after(Duration::from_secs(seconds));
        of.push(("Due before", Moment::of(before, asked).short));
    }
    of
}

/// `POST /bulk`
pub(super) async fn change(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Extension(fields): Extension<Fields>,
) -> Result<Response, Problem> {
    let verb = Verb::of(&fields)?;
    let operations = visitor.operations(&app, &fields)?;
    let answers = match Which::of(&operations, &fields, &verb)? {
        Which::Chosen(chosen) => operations.change_chosen(&chosen, verb.action).await?,
        Which::All(wanted, asked) => {
            let kind = Kind::from(wanted.kind.as_deref().unwrap_or_default());
            let filter = wanted.filter(vec![kind], asked);
            match operations.change_all(filter, verb.action).await? {
                Changed::Done { answers, .. } => answers,
                Changed::Begun(work) => return Ok(to_job(&app, &bulk::go_on(&app, *work)?.id)),
            }
        }
    };
    let search = form_urlencoded::Serializer::new(String::new())
        .append_pair("verb", &verb.field)
        .extend_pairs(answers.named().map(|(name, count)| (name, count.to_string())))
        .finish();
    Ok(go_to(&format!("{}/bulk/done?{search}", app.base_path)))
}

fn to_job(app: &Shared, id: &str) -> Response {
    go_to(&format!("{}/bulk/{id}", app.base_path))
}

/// How many were answered how, in words; only what there is of.
fn told(verb: &str, answers: &Answers) -> Vec<(&'static str, String)> {
    let done = match verb {
        "cancel" => "cancelled: they will not run",
        "run" => "are due now",
        "redrive" => "redriven: they have another life, and are due now",
        "dismiss" => "dismissed: they have ended for good",
        _ => "moved",
    };
    let all = [
        (done, answers.done),
        ("too late: they were running", answers.too_late),
        ("had ended already", answers.finished),
        (
            "were changed by somebody else meanwhile, or another live task has their key",
            answers.conflict,
        ),
        ("were not there any more", answers.not_found),
    ];
    let told = all
        .into_iter()
        .filter(|(what, count)| *count > 0 || *what == done);
    told.map(|(what, count)| (what, grouped(count))).collect()
}

#[derive(Debug, Template)]
#[template(path = "bulk_done.html")]
struct DonePage {
    frame: Frame,
    told: Vec<(&'static str, String)>,
}

/// `GET /bulk/done`
pub(super) async fn done(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    fields: Fields,
) -> Result<Response, Problem> {
    let count = |name| fields.one(name).and_then(|count| count.parse().ok()).unwrap_or(0);
    let answers = Answers {
        done: count("done"),
        too_late: count("too_late"),
        finished: count("finished"),
        conflict: count("conflict"),
        not_found: count("not_found"),
    };
    page(&DonePage {
        frame: Frame::new(&app, Tab::Tasks, Some(visitor)),
        told: told(fields.one("verb").unwrap_or_default(), &answers),
    })
}

/// A change in bulk that goes on, or has ended.
#[derive(Debug)]
struct JobRow {
    id: String,
    verb: &'static str,
    kind: String,
    state: String,
    goes_on: bool,
    seen: String,
    told: Vec<(&'static str, String)>,
    error: Option<String>,
    /// Who has begun it, and who has stopped it.
    actor: String,
    stopped_by: Option<String>,
    begun: Moment,
    ended: Option<Moment>,
}

impl From<JobView> for JobRow {
    fn from(job: JobView) -> Self {
        let now = now();
        let state = format!("{:?}", job.state).to_lowercase();
        Self {
            goes_on: job.ended_at.is_none(),
            state,
            seen: grouped(job.seen),
            told: told(job.verb, &job.answers),
            id: job.id,
            verb: job.verb,
            kind: job.kind,
            error: job.error,
            actor: job.actor,
            stopped_by: job.stopped_by,
            begun: Moment::of(job.begun_at.0, now),
            ended: job.ended_at.map(|Time(ended)| Moment::of(ended, now)),
        }
    }
}

#[derive(Debug, Template)]
#[template(path = "bulk.html")]
struct JobPage {
    frame: Frame,
    job: JobRow,
}

/// `GET /bulk/{id}`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let job = app.jobs.find(&id, &visitor.caller.operations(&app))?;
    page(&JobPage {
        frame: Frame::new(&app, Tab::Bulk, Some(visitor)),
        job: job.view().into(),
    })
}

/// `POST /bulk/{id}/stop`
pub(super) async fn stop(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let operations = visitor.caller.operations(&app);
    app.jobs.find(&id, &operations)?.stop(operations.actor()).await;
    Ok(to_job(&app, &id))
}

#[derive(Debug, Template)]
#[template(path = "bulk_list.html")]
struct ListPage {
    frame: Frame,
    jobs: Vec<JobRow>,
}

/// `GET /bulk`
pub(super) async fn list(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Problem> {
    let jobs = app.jobs.list(&visitor.caller.operations(&app));
    page(&ListPage {
        frame: Frame::new(&app, Tab::Bulk, Some(visitor)),
        jobs: jobs.into_iter().map(JobRow::from).collect(),
    })
}
