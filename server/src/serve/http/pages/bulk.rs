//! Changes of many tasks: first how many they would be, then the change, and what came of it.

use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use delayline::store::Action;
use delayline::{Kind, Timestamp};
use url::form_urlencoded;

use super::super::Shared;
use super::super::bulk;
use super::super::problem::Problem;
use super::fields::Fields;
use super::frame::{Frame, Tab, go_to, page};
use super::tasks;
use super::to::action;
use super::visitor::Visitor;
use super::wanted::Wanted;
use super::words::{COUNTED, Count, Moment};
use super::wrong::Wrong;
use crate::digits::grouped;
use crate::operations::{Answers, Bounds, Changed, HELD, Match, Operations, UNDO, state_for, state_name};
use crate::serve::config::Right;
use crate::time::now;

/// How many tasks are looked at to count those that match, where no index does.
const LOOKS: usize = 2_000;

/// What is changed at once, or the list that was wrongly filled in.
pub(super) fn held(request: &Request) -> usize {
    HELD.max(tasks::held(request))
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
                true => Err(nothing_chosen()),
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
    /// What cannot be taken back of it.
    warning: Option<&'static str>,
    /// Which they are.
    of: Vec<(&'static str, String)>,
    note: Option<&'static str>,
    is_none: bool,
    button: String,
    fields: Vec<(String, String)>,
    back: String,
    wrong: Wrong,
    reason: String,
}

/// `GET /bulk/check`
pub(super) async fn check(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    fields: Fields,
) -> Result<Response, Problem> {
    let wrong = match Verb::of(&fields) {
        Err(problem) if fields.one("verb") == Some("move") => Wrong::at("to", &problem),
        Ok(_) if fields.one("which") != Some("all") && fields.one("task").is_none() => {
            Wrong::at("which", &nothing_chosen())
        }
        _ => return checked(&app, visitor, &fields, Wrong::default()).await,
    };
    tasks::again(&app, visitor, &fields, wrong).await
}

fn nothing_chosen() -> Problem {
    let detail = "no task is chosen: choose some, or all that match; nothing was done";
    Problem::new(StatusCode::BAD_REQUEST, detail)
}

async fn checked(app: &Shared, visitor: Visitor, fields: &Fields, wrong: Wrong) -> Result<Response, Problem> {
    let verb = Verb::of(fields)?;
    let operations = visitor.caller.operations(app);
    let mut kept = vec![("verb".to_owned(), verb.field.clone())];
    kept.extend(verb.to.clone().map(|to| ("to".to_owned(), to)));
    let (before, after) = verb.words();
    let (count, at_least, of, back) = match Which::of(&operations, fields, &verb)? {
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
            let (count, at_least) = matching(app, &operations, &wanted, asked).await?;
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
    let may_undo = visitor.caller.may(Right::Schedule);
    let warning = match verb.action {
        Action::Cancel if may_undo && fields.one("which") != Some("all") => {
            Some(match app.current().of_gateway.is_empty() {
                true => "Cancelled, they do not run. It can be undone for ten seconds.",
                false => {
                    "Cancelled, they do not run. It can be undone for ten seconds, but for messages of the gateway."
                }
            })
        }
        Action::Cancel => {
            Some("Cancelled, they do not run. It cannot be undone, but each can be run again as a new task.")
        }
        Action::Dismiss => Some("Dismissed, they have ended for good."),
        _ => None,
    };
    page(&CheckPage {
        frame: Frame::new(app, Tab::Tasks, Some(visitor)),
        title: format!("{before} {tasks}{after}?"),
        warning,
        of,
        note: at_least.then_some(
            "Only the first 2,000 were looked at, and there are more: all that match will be changed.",
        ),
        is_none: count.is_zero() && !at_least,
        button: format!("{before} {tasks}"),
        fields: kept,
        back,
        wrong,
        reason: fields.one("reason").unwrap_or_default().to_owned(),
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
    let mut of = vec![("State", state_name(wanted.state()).to_owned())];
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
    if let Err(problem) = fields.reason() {
        let mut response = checked(&app, visitor, &fields, Wrong::at("reason", &problem)).await?;
        *response.status_mut() = problem.status();
        return Ok(response);
    }
    let operations = visitor.operations(&app, &fields)?;
    let answers = match Which::of(&operations, &fields, &verb)? {
        Which::Chosen(chosen) => {
            let (answers, of_callers) = operations.change_chosen(&chosen, verb.action).await?;
            // Else it is not known which of them were cancelled by this.
            let is_of_all = verb.action == Action::Cancel && answers.done == chosen.len();
            let cancelled = if is_of_all { &of_callers[..] } else { &[] };
            return Ok(to_done(&app, &verb.field, &answers, cancelled));
        }
        Which::All(wanted, asked) => {
            let kind = Kind::from(wanted.kind.as_deref().unwrap_or_default());
            let filter = wanted.filter(vec![kind], asked);
            match operations.change_all(filter, verb.action).await? {
                Changed::Done { answers, .. } => answers,
                Changed::Begun(work) => return Ok(to_job(&app, &bulk::go_on(&app, *work)?.id)),
            }
        }
    };
    Ok(to_done(&app, &verb.field, &answers, &[]))
}

/// Leads to what came of it; it says which of those that were cancelled can be put back.
pub(super) fn to_done(app: &Shared, verb: &str, answers: &Answers, cancelled: &[Match]) -> Response {
    let mut search = form_urlencoded::Serializer::new(String::new());
    search
        .append_pair("verb", verb)
        .extend_pairs(answers.named().map(|(name, count)| (name, count.to_string())));
    if !cancelled.is_empty() {
        search
            .append_pair("until", &now().after(UNDO).as_millis().to_string())
            .extend_pairs(cancelled.iter().map(|task| ("task", task.id.to_string())));
    }
    go_to(&format!("{}/bulk/done?{}", app.base_path, search.finish()))
}

pub(super) fn to_job(app: &Shared, id: &str) -> Response {
    go_to(&format!("{}/bulk/{id}", app.base_path))
}

/// How many were answered how, in words; only what there is of.
pub(super) fn labelled(verb: &str, answers: &Answers) -> Vec<(&'static str, String)> {
    let done = match verb {
        "cancel" => "cancelled: they will not run",
        "run" => "are due now",
        "redrive" => "redriven: they have another life, and are due now",
        "dismiss" => "dismissed: they have ended for good",
        "undo" => "put back: others stand for them, due when they were",
        _ => "moved",
    };
    let conflict = match verb {
        "undo" => {
            "not put back: ten seconds were over, another live task has their key, or the gateway alone schedules their like"
        }
        _ => "were changed by another caller meanwhile, or another live task has their key",
    };
    let all = [
        (done, answers.done),
        ("too late: they were running", answers.too_late),
        ("had ended already", answers.finished),
        (conflict, answers.conflict),
        ("were not there any more", answers.not_found),
        (
            "could not be changed, or it is not known: the server's log says why",
            answers.failed,
        ),
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
    /// What can be undone, and until when.
    cancelled: Vec<String>,
    undo_until: Option<Moment>,
    lines: Vec<(&'static str, String)>,
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
        failed: count("failed"),
    };
    let until = fields.one("until").and_then(|until| until.parse().ok());
    let until = until.map(Timestamp::from_millis).filter(|until| *until > now());
    let until = until.filter(|_| visitor.caller.may(Right::Schedule) && visitor.may_change());
    page(&DonePage {
        cancelled: fields.all("task").map(str::to_owned).collect(),
        undo_until: until.map(|until| Moment::of(until, now())),
        frame: Frame::new(&app, Tab::Tasks, Some(visitor)),
        lines: labelled(fields.one("verb").unwrap_or_default(), &answers),
    })
}
