//! One task: all that is known of it, and what can be done with it.

use askama::Template;
use axum::Extension;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use delayline::history::Explanation;
use delayline::store::{Expect, Target};
use delayline::{Answer, State as TaskState, Task, TaskId, Timestamp};

use super::super::Shared;
use super::super::admission::A_TASK;
use super::super::problem::Problem;
use super::edit::{Editing, edit};
use super::fields::Fields;
use super::frame::{Frame, Tab, go_to, page};
use super::payload::PayloadView;
use super::timeline::{Happened, timeline};
use super::to::action;
use super::undo::undo;
use super::visitor::Visitor;
use super::words::{Moment, Piece, Said, code, pieces, said};
use super::wrong::Wrong;
use crate::operations::{Refusal, state_name, undo_until};
use crate::reserved;
use crate::serve::config::{Right, TraceUrl};
use crate::serve::traces::Place;

/// A task, and its payload as text.
pub(super) fn held(_: &Request) -> usize {
    2 * A_TASK
}

#[derive(Debug, Template)]
#[template(path = "task.html")]
struct TaskPage {
    frame: Frame,
    said: Option<Said>,
    title: String,
    id: String,
    kind: String,
    state: &'static str,
    facts: Vec<Fact>,
    headers: Vec<(String, String)>,
    error: Option<String>,
    words: Vec<Vec<Piece>>,
    history: Vec<Happened>,
    is_cut: bool,
    bytes: usize,
    payload: Option<PayloadView>,
    may_edit: bool,
    /// None, unless it is edited.
    editing: Option<Editing>,
    may_move: bool,
    is_dead: bool,
    /// Whether callers may schedule its like.
    is_of_callers: bool,
    /// Whether it has ended, and its visitor may schedule it once more.
    may_rerun: bool,
    due_at: String,
    /// When it is due, if it waits.
    due: Moment,
    /// Until when its cancel can be undone, right after it.
    undo_until: Option<Moment>,
    /// What was filled in, if something was wrong with it.
    wrong: Wrong,
    to: String,
    reason: String,
}

/// Something that is known of a task.
#[derive(Debug)]
struct Fact {
    name: &'static str,
    value: Value,
}

#[derive(Debug)]
enum Value {
    Text(String),
    Time(Moment),
    Link { to: String, text: String },
}

fn facts(task: &Task, now: Timestamp, trace_url: Option<&TraceUrl>) -> Vec<Fact> {
    let mut facts = Vec::new();
    let mut add = |name, value| facts.push(Fact { name, value });
    let time = |time| Value::Time(Moment::of(time, now));
    add("Due", time(task.due_at));
    if task.planned_at != task.due_at {
        add("Wanted at first", time(task.planned_at));
    }
    if let Some(finished) = task.finished_at {
        add("Ended", time(finished));
    }
    if let Some(key) = &task.key {
        add("Key", Value::Text(key.to_string()));
    }
    add("Id", Value::Text(task.id.to_string()));
    let attempts = match task.max_attempts {
        Some(most) => format!("{} of {most}", task.attempt),
        None => task.attempt.to_string(),
    };
    add("Attempts", Value::Text(attempts));
    if task.stalls > 0 {
        add("Workers lost in a row", Value::Text(task.stalls.to_string()));
    }
    if let Some(owner) = &task.owner {
        let name = match task.state {
            TaskState::Running => "Worker",
            _ => "Last worker",
        };
        add(name, Value::Text(owner.clone()));
    }
    if task.state == TaskState::Running
        && let Some(until) = task.wake_at
    {
        add("Lease until", time(until));
    }
    add("Hops so far", Value::Text(task.hop.to_string()));
    add("Version", Value::Text(task.version.to_string()));
    add("Scheduled", time(task.created_at));
    add("Changed", time(task.updated_at));
    let made_in = Place::of(|header| task.headers.get(header).map(String::as_str));
    if let Some((made_in, trace_url)) = made_in.zip(trace_url) {
        let text = made_in.trace_id().to_owned();
        let to = trace_url.of(&text);
        add("Made in the trace", Value::Link { to, text });
    }
    facts
}

fn or_gone(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::NoTask => not_found(),
        refusal => refusal.into(),
    }
}

pub(super) fn not_found() -> Problem {
    let detail = "there is no such task: it may have been removed since, as history is after a week";
    Problem::new(StatusCode::NOT_FOUND, detail)
}

/// `GET /tasks/{id}`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Path(id): Path<String>,
    fields: Fields,
) -> Result<Response, Problem> {
    shown(&app, visitor, id.parse()?, &fields, Wrong::default()).await
}

async fn shown(
    app: &Shared,
    visitor: Visitor,
    id: TaskId,
    fields: &Fields,
    wrong: Wrong,
) -> Result<Response, Problem> {
    // Also where a form is shown once more.
    visitor.caller.need(Right::Read)?;
    let operations = visitor.caller.operations(app);
    let explained = operations.explain(Target::Id(id)).await.map_err(or_gone);
    let Explanation {
        task,
        history,
        is_cut,
        words,
        now,
        ..
    } = explained?;
    let wanted = fields.one("payload");
    let payload = wanted.map(|_| PayloadView::of(&task.payload));
    let editing = payload
        .as_ref()
        .filter(|_| visitor.may_change())
        .and_then(|payload| Editing::of(&task, payload, fields));
    let is_of_callers = reserved::is_of_callers(&task);
    let may_rerun = is_of_callers && !task.state.is_live() && visitor.caller.may(Right::Schedule);
    let is_just_cancelled = may_rerun && fields.one("said") == Some("cancel.done");
    let undo_until = undo_until(&task).filter(|until| is_just_cancelled && *until > now);
    let filled = |name| fields.one(name).unwrap_or_default().to_owned();
    page(&TaskPage {
        is_of_callers,
        may_rerun,
        frame: Frame::new(app, Tab::Tasks, Some(visitor)),
        said: fields.one("said").and_then(said),
        title: task
            .key
            .as_ref()
            .map_or_else(|| id.to_string(), ToString::to_string),
        id: id.to_string(),
        kind: task.kind.to_string(),
        state: state_name(task.state),
        facts: facts(&task, now, app.trace_url.as_ref()),
        words: words.iter().map(|words| pieces(words, now)).collect(),
        history: timeline(history, now),
        is_cut,
        bytes: task.payload.len(),
        payload,
        may_edit: editing.is_some(),
        editing: editing.filter(|_| wanted == Some("edit")),
        may_move: task.state == TaskState::Scheduled,
        is_dead: task.state == TaskState::Dead,
        due_at: task.due_at.to_string(),
        due: Moment::of(task.due_at, now),
        undo_until: undo_until.map(|until| Moment::of(until, now)),
        headers: reserved::shown(task.headers).into_iter().collect(),
        error: task.last_error,
        wrong,
        to: filled("to"),
        reason: filled("reason"),
    })
}

/// Shows a task once more, with what was filled in and what is wrong with it.
pub(super) async fn shown_again(
    app: &Shared,
    visitor: Visitor,
    id: TaskId,
    fields: &Fields,
    field: &'static str,
    problem: Problem,
) -> Result<Response, Problem> {
    let mut response = shown(app, visitor, id, fields, Wrong::at(field, &problem)).await?;
    *response.status_mut() = problem.status();
    Ok(response)
}

/// `POST /tasks/{id}/{verb}`
pub(super) async fn act(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Extension(fields): Extension<Fields>,
    Path((id, verb)): Path<(String, String)>,
) -> Result<Response, Problem> {
    let id: TaskId = id.parse()?;
    if verb == "edit" {
        return edit(&app, visitor, &fields, id).await;
    }
    let asked = match (action(&verb, &fields), fields.reason()) {
        (Err(problem), _) => return shown_again(&app, visitor, id, &fields, "to", problem).await,
        (_, Err(problem)) => return shown_again(&app, visitor, id, &fields, "reason", problem).await,
        (Ok(asked), Ok(_)) => asked,
    };
    match verb.as_str() {
        "rerun" => return rerun(&app, &visitor, &fields, id).await,
        "undo" => return put_back(&app, &visitor, id).await,
        _ => {}
    }
    let nothing = || Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path");
    let action = asked.ok_or_else(nothing)?;
    let operations = visitor.operations(&app, &fields)?;
    let answer = operations
        .change(Target::Id(id), Expect::Anything, action)
        .await?;
    if answer == Answer::NotFound {
        return Err(not_found());
    }
    Ok(to_task(&app, id, &code(&verb, &answer)))
}

pub(super) fn to_task(app: &Shared, id: TaskId, said: &str) -> Response {
    go_to(&format!("{}/tasks/{id}?said={said}", app.base_path))
}

/// Runs a task once more, and shows the new one.
async fn rerun(app: &Shared, visitor: &Visitor, fields: &Fields, id: TaskId) -> Result<Response, Problem> {
    visitor.caller.need(Right::Schedule)?;
    let operations = visitor.caller.operations(app);
    let answer = operations.rerun(Target::Id(id), fields.reason()?).await?;
    let task = answer.task().ok_or_else(not_found)?;
    Ok(to_task(app, task.id, &code("rerun", &answer)))
}

/// Puts a task back that was cancelled a moment ago, and shows the one that stands for it.
async fn put_back(app: &Shared, visitor: &Visitor, id: TaskId) -> Result<Response, Problem> {
    let answer = undo(app, visitor, id).await?;
    let task = answer.task().ok_or_else(not_found)?;
    Ok(to_task(app, task.id, &code("undo", &answer)))
}
