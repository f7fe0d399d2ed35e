//! Finding tasks.

use askama::Template;
use axum::Extension;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use delayline::{Kind, State as TaskState, Task, Timestamp};
use url::form_urlencoded;

use super::super::Shared;
use super::super::admission::A_TASK;
use super::super::problem::Problem;
use super::fields::Fields;
use super::find::{elsewhere, exact};
use super::frame::{Frame, Tab, go_to, page};
use super::visitor::Visitor;
use super::wanted::{Choice, DUE, Wanted, choices, cursor, kinds};
use super::words::Moment;
use super::wrong::Wrong;
use crate::operations::{Bounds, KINDS, LEAN, Operations, Position, state_name};
use crate::serve::config::Right;
use crate::time::now;

/// How many tasks a page has, and of each state where a page is of all.
const TASKS: usize = 50;
const OF_EACH: usize = 20;
/// How many tasks are looked at for a page: so few that it comes at once.
const LOOKS: usize = 2_000;
/// How many tasks are read at once.
const PIECE: usize = 32;

/// What a page holds while it is made: the tasks on it, those that are read, of which one of each kind waits for its turn,
/// and one of each that may have the very key that was searched for, with its payload until that is left out.
pub(super) fn held(request: &Request) -> usize {
    let fields = Fields::parse(request.uri().query().unwrap_or_default().as_bytes());
    let kinds = if fields.one("kind").is_some() { 1 } else { KINDS };
    let on_it = match fields.one("q") {
        Some(_) => OF_EACH * TaskState::ALL.len() + kinds,
        None => TASKS,
    };
    A_TASK + (on_it + PIECE + kinds) * LEAN
}

#[derive(Debug, Template)]
#[template(path = "tasks.html")]
struct TasksPage {
    frame: Frame,
    /// A list for each state, and one of all where a key is searched for.
    lists: Vec<List>,
    kinds: Vec<Choice>,
    due: Vec<Choice>,
    /// Those with the very key that was searched for, of any state.
    exact: Vec<TaskRow>,
    tasks: Vec<TaskRow>,
    /// What the list is of.
    heading: String,
    /// Why the list may be short.
    note: Option<String>,
    next: Option<String>,
    is_first: bool,
    first: String,
    /// As which the filter is sent along with a change, and the place to come back to if something is wrong.
    filter: Vec<(String, String)>,
    /// Whether these can be changed: those that wait, and those that are dead.
    may_change: bool,
    is_dead: bool,
    wanted: Wanted,
    state: Option<&'static str>,
    /// What was filled in, if something was wrong with it.
    wrong: Wrong,
    to: String,
    which: String,
}

/// A list that this one may be changed for.
#[derive(Debug)]
struct List {
    text: String,
    search: String,
    is_shown: bool,
}

/// A task in a list.
#[derive(Debug)]
pub(super) struct TaskRow {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) key: Option<String>,
    pub(super) state: &'static str,
    pub(super) due: Moment,
    pub(super) attempt: u32,
    pub(super) error: Option<String>,
    /// As which it is chosen: as it is in the list, so that it is left alone if another caller moves it meanwhile.
    pub(super) position: String,
    pub(super) is_chosen: bool,
}

impl TaskRow {
    pub(super) fn of(task: Task, now: Timestamp) -> Self {
        Self {
            position: Position::from(&task).to_string(),
            id: task.id.to_string(),
            kind: task.kind.to_string(),
            key: task.key.map(|key| key.to_string()),
            state: state_name(task.state),
            due: Moment::of(task.due_at, now),
            attempt: task.attempt,
            error: task.last_error,
            is_chosen: false,
        }
    }

    /// What it is called.
    fn label(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.id)
    }
}

/// `GET /tasks`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    fields: Fields,
) -> Result<Response, Problem> {
    let wanted = Wanted::of(&fields)?;
    let operations = visitor.caller.operations(&app);
    if let Some(place) = elsewhere(&operations, &wanted).await? {
        return Ok(go_to(&format!("{}{place}", app.base_path)));
    }
    listed(&app, visitor, &fields, Wrong::default()).await
}

/// Shows the list again, with what was chosen and filled in, and what was wrong with it.
pub(super) async fn again(
    app: &Shared,
    visitor: Visitor,
    fields: &Fields,
    wrong: Wrong,
) -> Result<Response, Problem> {
    let mut response = listed(app, visitor, fields, wrong).await?;
    *response.status_mut() = StatusCode::BAD_REQUEST;
    Ok(response)
}

async fn listed(app: &Shared, visitor: Visitor, fields: &Fields, wrong: Wrong) -> Result<Response, Problem> {
    // Also where it is shown again.
    visitor.caller.need(Right::Read)?;
    let wanted = Wanted::of(fields)?;
    let operations = visitor.caller.operations(app);
    let (after, now) = (cursor(fields)?, now());
    let all = kinds(&operations, wanted.state()).await?;
    let exact = match (&wanted.q, after) {
        (Some(key), None) => exact(&operations, &wanted, key).await?,
        _ => Vec::new(),
    };
    let mut found = match wanted.is_of_all_states() {
        true => Found::of_all_states(&operations, &wanted, now).await?,
        false => Found::of_one_state(&operations, &wanted, &all, after, now).await?,
    };
    if wanted.is_of_all_states() {
        found
            .tasks
            .retain(|task| exact.iter().all(|exact| exact.id != task.id));
    }
    let rows = |tasks: Vec<Task>| tasks.into_iter().map(|task| TaskRow::of(task, now)).collect();
    let mut tasks: Vec<TaskRow> = rows(found.tasks);
    for row in &mut tasks {
        row.is_chosen = fields.all("task").any(|task| task == row.position);
    }
    let state = wanted.state.map(state_name);
    let next = found.next;
    let can_be_changed = matches!(wanted.state(), TaskState::Scheduled | TaskState::Dead);
    let mut frame = Frame::new(app, Tab::Tasks, Some(visitor));
    frame.q = wanted.q.clone().unwrap_or_default();
    page(&TasksPage {
        heading: heading(&wanted),
        exact: rows(exact),
        tasks,
        note: found.note,
        next: next.map(|next| wanted.search().append_pair("cursor", &next.to_string()).finish()),
        is_first: after.is_none(),
        first: wanted.search().finish(),
        kinds: choices(&all, wanted.kind.as_deref()),
        lists: lists(&wanted),
        due: DUE
            .map(|(value, text, _)| Choice {
                value: value.to_owned(),
                text: text.to_owned(),
                is_chosen: wanted.due.as_deref() == Some(value),
            })
            .into(),
        filter: form_urlencoded::parse(wanted.search().finish().as_bytes())
            .into_owned()
            .chain(
                fields
                    .one("cursor")
                    .map(|cursor| ("cursor".to_owned(), cursor.to_owned())),
            )
            .collect(),
        may_change: frame.may_change() && !wanted.is_of_all_states() && can_be_changed,
        is_dead: wanted.state() == TaskState::Dead,
        frame,
        state,
        wanted,
        wrong,
        to: fields.one("to").unwrap_or_default().to_owned(),
        which: fields.one("which").unwrap_or("chosen").to_owned(),
    })
}

/// What was found for a page.
struct Found {
    tasks: Vec<Task>,
    next: Option<Position>,
    note: Option<String>,
}

impl Found {
    async fn of_one_state(
        operations: &Operations,
        wanted: &Wanted,
        all: &[Kind],
        after: Option<Position>,
        now: Timestamp,
    ) -> Result<Self, Problem> {
        let bounds = bounds(TASKS, 1);
        let filter = wanted.filter(wanted.kinds_among(all), now);
        let (tasks, next): (Vec<Task>, _) = operations.list(&filter, after, bounds).await?;
        let note = if wanted.kind.is_none() && all.len() > KINDS {
            Some(
                "There are tasks of more than 100 kinds, and these are of the first 100 by name: choose a kind.",
            )
        } else if next.is_some() && tasks.len() < TASKS {
            Some("Many tasks have to be looked at for this: go on to the next page.")
        } else {
            None
        };
        let note = note.map(str::to_owned);
        Ok(Self { tasks, next, note })
    }

    /// Finds the first of each state. Those that follow are on the list of the state.
    async fn of_all_states(
        operations: &Operations,
        wanted: &Wanted,
        now: Timestamp,
    ) -> Result<Self, Problem> {
        let (mut found, mut more) = (Vec::new(), Vec::new());
        for state in TaskState::ALL {
            let of_state = wanted.of_state(Some(state));
            let all = kinds(operations, state).await?;
            let filter = of_state.filter(of_state.kinds_among(&all), now);
            let bounds = bounds(OF_EACH, TaskState::ALL.len());
            let (tasks, next): (Vec<Task>, _) = operations.list(&filter, None, bounds).await?;
            found.extend(tasks);
            more.extend(next.map(|_| state_name(state)));
        }
        let note = (!more.is_empty()).then(|| {
            let states = more.join(", ");
            format!("There may be more that are {states}: choose the state to see all of it.")
        });
        Ok(Self {
            tasks: found,
            next: None,
            note,
        })
    }
}

/// Bounds a page, or one of several parts of it.
fn bounds(tasks: usize, parts: usize) -> Bounds {
    Bounds {
        tasks,
        looks: LOOKS / parts,
        payloads: None,
        read: PIECE,
    }
}

fn lists(wanted: &Wanted) -> Vec<List> {
    let is_of_all = wanted.is_of_all_states();
    let list = |state: Option<TaskState>| List {
        text: state.map_or("all", state_name).to_owned(),
        search: wanted.of_state(state).search().finish(),
        is_shown: match state {
            None => is_of_all,
            Some(state) => !is_of_all && state == wanted.state(),
        },
    };
    let all = wanted.q.is_some().then(|| list(None));
    all.into_iter()
        .chain(TaskState::ALL.map(|state| list(Some(state))))
        .collect()
}

fn heading(wanted: &Wanted) -> String {
    let mut text = match wanted.is_of_all_states() {
        true => "tasks of all states".to_owned(),
        false => format!("{} tasks", state_name(wanted.state())),
    };
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    if let Some(q) = &wanted.q {
        text += &format!(" with a key that begins with “{q}”");
    }
    if let Some(error) = &wanted.error {
        text += &format!(" whose last error has “{error}” in it");
    }
    text
}
