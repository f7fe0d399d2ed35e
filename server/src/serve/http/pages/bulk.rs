//! Changes of many tasks: first how many they would be, then the change, and what came of it.

use std::time::Duration;

use askama::Template;
use axum::extract::{Path, Request, State};
use axum::response::Response;
use axum::{Extension, Json};
use delayline::store::{Action, Target};
use delayline::{Kind, Timestamp};
use url::form_urlencoded;

use super::super::bulk::{self, Changed, JobView};
use super::super::problem::Problem;
use super::super::task::position;
use super::super::{Shared, now};
use super::fields::Fields;
use super::frame::{Frame, Tab, go_to, page};
use super::tasks::{Wanted, name};
use super::to::To;
use super::visitor::Visitor;
use super::words::{COUNTED, Count, Moment};
use crate::bulk::{Answers, Match, state_for};
use crate::digits::grouped;
use crate::filter::{Bounds, PAGE};
use crate::reserved;

/// How many tasks are looked at to count those that match, where no index does.
const LOOKS: usize = 2_000;

pub(super) fn held(_: &Request) -> usize {
    bulk::HELD
}

/// What is to be done with many tasks.
struct Verb {
    /// As the interface for programs calls it.
    name: &'static str,
    action: Action,
    /// Where to they are moved, as it was written.
    to: Option<String>,
}

impl Verb {
    fn of(fields: &Fields) -> Result<Self, Problem> {
        let verb = fields.one("verb").unwrap_or_default();
        let mut to = None;
        let (name, action) = match verb {
            "cancel" => ("cancel", Action::Cancel),
            "run" => ("run", Action::RunNow),
            "redrive" => ("redrive", Action::Redrive),
            "dismiss" => ("dismiss", Action::Dismiss),
            "move" => {
                let text = fields.one("to").unwrap_or_default();
                to = Some(text.to_owned());
                match To::parse(text)? {
                    To::Time(when) => ("reschedule", Action::Reschedule(when)),
                    To::By(by) => ("shift", Action::Shift(by)),
                }
            }
            _ => {
                let allowed = "allowed are cancel, run, redrive, dismiss and move";
                return Err(Problem::invalid("verb", verb, allowed));
            }
        };
        Ok(Self { name, action, to })
    }

    /// Refuses a kind of which this visitor may not change tasks so.
    fn check(&self, visitor: &Visitor, kind: &Kind) -> Result<(), Problem> {
        reserved::check_change(kind, self.action == Action::Dismiss)?;
        visitor.caller.reach(kind)
    }

    /// As a form has it.
    fn field(&self) -> &'static str {
        match self.name {
            "reschedule" | "shift" => "move",
            name => name,
        }
    }

    /// In words, before and after how many there are.
    fn words(&self) -> (&'static str, String) {
        let to = self.to.as_deref().unwrap_or_default();
        match self.name {
            "cancel" => ("Cancel", String::new()),
            "run" => ("Run", " now".to_owned()),
            "redrive" => ("Redrive", String::new()),
            "dismiss" => ("Dismiss", String::new()),
            "shift" => ("Move", format!(", each by {to}")),
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
    fn of(visitor: &Visitor, fields: &Fields, verb: &Verb) -> Result<Self, Problem> {
        if fields.one("which") != Some("all") {
            let chosen = fields.all("task");
            let chosen: Result<Vec<_>, _> = chosen
                .map(|task| position(task.to_owned()).map(Match::from))
                .collect();
            let chosen = chosen?;
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
        verb.check(visitor, &Kind::from(kind.as_str()))?;
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
    let mut kept = vec![("verb".to_owned(), verb.field().to_owned())];
    kept.extend(verb.to.clone().map(|to| ("to".to_owned(), to)));
    let (before, after) = verb.words();
    let (count, at_least, of, back) = match Which::of(&visitor, &fields, &verb)? {
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
            let (count, at_least) = matching(&app, &wanted, asked).await?;
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
async fn matching(app: &Shared, wanted: &Wanted, asked: Timestamp) -> Result<(Count, bool), Problem> {
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
    let bounds = Bounds {
        tasks: COUNTED,
        looks: LOOKS,
        bytes: usize::MAX,
        read: PAGE,
    };
    let filter = wanted.filter(vec![kind], asked);
    let (found, next): (Vec<Match>, _) = filter.page(&app.scheduler, None, bounds).await?;
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
    let scheduler = visitor.scheduler(&app, &fields)?;
    let answers = match Which::of(&visitor, &fields, &verb)? {
        Which::Chosen(chosen) => {
            // A form may name any task.
            for id in chosen.iter().map(Match::id) {
                if let Some(task) = app.scheduler.find(Target::Id(id)).await? {
                    verb.check(&visitor, &task.kind)?;
                }
            }
            crate::bulk::change(&scheduler, &chosen, verb.action, |_| ()).await?
        }
        Which::All(wanted, asked) => {
            let kind = Kind::from(wanted.kind.as_deref().unwrap_or_default());
            let filter = wanted.filter(vec![kind], asked);
            match bulk::change_all(&app, scheduler, filter, verb.name, verb.action, visitor.actor()).await? {
                Changed::Within { answers, .. } => answers,
                Changed::Behind(job) => return Ok(go_to(&format!("{}/bulk/{}", app.base_path, job.id))),
            }
        }
    };
    let Answers {
        done,
        too_late,
        finished,
        conflict,
        not_found,
    } = answers;
    let search = form_urlencoded::Serializer::new(String::new())
        .append_pair("verb", verb.field())
        .extend_pairs(
            [
                ("done", done),
                ("too_late", too_late),
                ("finished", finished),
                ("conflict", conflict),
                ("not_found", not_found),
            ]
            .map(|(name, count)| (name, count.to_string())),
        )
        .finish();
    Ok(go_to(&format!("{}/bulk/done?{search}", app.base_path)))
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
            begun: Moment::of(job.begun_at, now),
            ended: job.ended_at.map(|ended| Moment::of(ended, now)),
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
    id: Path<String>,
) -> Result<Response, Problem> {
    let caller = Extension(visitor.caller.clone());
    let Json(job) = bulk::show(State(app.clone()), caller, id).await?;
    page(&JobPage {
        frame: Frame::new(&app, Tab::Bulk, Some(visitor)),
        job: job.into(),
    })
}

/// `POST /bulk/{id}/stop`
pub(super) async fn stop(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let job = bulk::stopped(&app, &visitor.caller, &id, visitor.actor()).await?;
    Ok(go_to(&format!("{}/bulk/{}", app.base_path, job.id)))
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
    let jobs = app.jobs.all(|kind| visitor.caller.reaches(kind));
    page(&ListPage {
        frame: Frame::new(&app, Tab::Bulk, Some(visitor)),
        jobs: jobs.into_iter().map(JobRow::from).collect(),
    })
}
