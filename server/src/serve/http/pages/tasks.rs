//! Finding tasks.

use std::time::Duration;

use askama::Template;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use delayline::store::Target;
use delayline::{Key, Kind, State as TaskState, Task, TaskId, Timestamp};
use url::form_urlencoded;

use super::super::Shared;
use super::super::problem::Problem;
use super::fields::Fields;
use super::frame::{Frame, Tab, go_to, page};
use super::visitor::Visitor;
use super::words::Moment;
use crate::operations::{Bounds, Filter, Operations, Position, Refusal};
use crate::time::now;

/// How many tasks a page has.
const TASKS: usize = 50;
/// How many tasks are looked at for a page: so few that it comes at once.
const LOOKS: usize = 2_000;
/// How many tasks are read at once.
const PIECE: usize = 16;
/// Of how many kinds a list may be that names none.
pub(super) const KINDS: usize = 100;
/// After so many bytes of payloads a page ends.
const FULL: usize = 4 << 20;

/// What a page holds while it is made, as a payload has up to 1 MiB: a task of each kind waits for its turn.
pub(super) fn held(request: &Request) -> usize {
    let search = request.uri().query().unwrap_or_default();
    let kinds = match Fields::parse(search.as_bytes()).one("kind") {
        Some(_) => 0,
        None => KINDS,
    };
    FULL + ((PIECE + kinds) << 20)
}

pub(super) fn name(state: TaskState) -> String {
    format!("{state:?}").to_lowercase()
}

/// Within which time tasks are due.
const DUE: [(&str, &str, u64); 4] = [
    ("now", "now", 0),
    ("5m", "within 5 minutes", 300),
    ("1h", "within 1 hour", 3_600),
    ("24h", "within 1 day", 86_400),
];

#[derive(Debug, Template)]
#[template(path = "tasks.html")]
struct TasksPage {
    frame: Frame,
    q: String,
    kinds: Vec<Choice>,
    states: Vec<Choice>,
    due: Vec<Choice>,
    /// Those with the very key that was searched for, of any state.
    exact: Vec<TaskRow>,
    tasks: Vec<TaskRow>,
    /// What the list is of.
    heading: String,
    /// Why the list may be short.
    note: Option<&'static str>,
    next: Option<String>,
    is_first: bool,
    first: String,
    /// As which the filter is sent along with a change.
    filter: Vec<(String, String)>,
    /// Whether these can be changed: those that wait, and those that are dead.
    may_change: bool,
    is_dead: bool,
    /// What is looked for in the last error.
    error: Option<String>,
    /// The kind that is listed; none if it is all.
    kind: Option<String>,
}

/// What can be chosen.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) text: String,
    pub(super) is_chosen: bool,
}

/// A task in a list.
#[derive(Debug)]
pub(super) struct TaskRow {
    pub(super) id: String,
    pub(super) kind: String,
    pub(super) key: Option<String>,
    pub(super) state: String,
    pub(super) due: Moment,
    pub(super) attempt: u32,
    pub(super) error: Option<String>,
    /// As which it is chosen: as it is in the list, so that it is left alone if somebody moves it meanwhile.
    pub(super) position: String,
}

impl TaskRow {
    pub(super) fn of(task: Task, now: Timestamp) -> Self {
        Self {
            position: Position::from(&task).to_string(),
            id: task.id.to_string(),
            kind: task.kind.to_string(),
            key: task.key.map(|key| key.to_string()),
            state: name(task.state),
            due: Moment::of(task.due_at, now),
            attempt: task.attempt,
            error: task.last_error,
        }
    }

    /// What it is called.
    fn label(&self) -> &str {
        self.key.as_deref().unwrap_or(&self.id)
    }
}

/// Which tasks are wanted.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    /// A key or how it begins.
    pub(super) q: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) state: Option<TaskState>,
    pub(super) due: Option<String>,
    pub(super) error: Option<String>,
}

impl Wanted {
    pub(super) fn of(fields: &Fields) -> Result<Self, Problem> {
        let text = |name| fields.one(name).map(str::to_owned);
        let state = |wanted: &str| {
            let state = TaskState::ALL.into_iter().find(|state| name(*state) == wanted);
            let allowed = "allowed are scheduled, running, done, dead and cancelled";
            state.ok_or_else(|| Problem::invalid("state", wanted, allowed))
        };
        let due = |due: &str| match DUE.iter().any(|(value, ..)| *value == due) {
            true => Ok(due.to_owned()),
            false => Err(Problem::invalid("due", due, "allowed are now, 5m, 1h and 24h")),
        };
        Ok(Self {
            q: text("q"),
            kind: text("kind"),
            state: fields.one("state").map(state).transpose()?,
            due: fields.one("due").map(due).transpose()?,
            error: text("error"),
        })
    }

    pub(super) fn state(&self) -> TaskState {
        self.state.unwrap_or(TaskState::Scheduled)
    }

    /// Within how many seconds they are due, if that is wanted.
    pub(super) fn due_within(&self) -> Option<u64> {
        let due = DUE.iter().find(|(value, ..)| Some(*value) == self.due.as_deref());
        due.map(|(_, _, seconds)| *seconds)
    }

    pub(super) fn filter(&self, kinds: Vec<Kind>, now: Timestamp) -> Filter {
        let due = self.due_within();
        Filter {
            kinds,
            state: self.state(),
            due_after: None,
            due_before: due.map(|seconds| now.after(Duration::from_secs(seconds))),
            key_prefix: self.q.clone(),
            error: self.error.clone(),
        }
    }

    /// The same as a search.
    pub(super) fn search(&self) -> form_urlencoded::Serializer<'static, String> {
        let mut search = form_urlencoded::Serializer::new(String::new());
        let state = self.state.map(name);
        for (name, value) in [
            ("q", &self.q),
            ("kind", &self.kind),
            ("state", &state),
            ("due", &self.due),
            ("error", &self.error),
        ] {
            if let Some(value) = value {
                search.append_pair(name, value);
            }
        }
        search
    }
}

/// The kinds that a list may be of that names none, and one more if there are more.
pub(super) async fn kinds(operations: &Operations, state: TaskState) -> Result<Vec<Kind>, Problem> {
    Ok(operations.kinds_in(state, None, KINDS + 1).await?)
}

/// The place after which a page begins.
pub(super) fn cursor(fields: &Fields) -> Result<Option<Position>, Problem> {
    Ok(fields.one("cursor").map(str::parse).transpose()?)
}

/// `GET /tasks`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    fields: Fields,
) -> Result<Response, Problem> {
    let wanted = Wanted::of(&fields)?;
    let operations = visitor.caller.operations(&app);
    let after = cursor(&fields)?;
    let now = now();
    let all = kinds(&operations, wanted.state()).await?;
    if let Some(place) = elsewhere(&operations, &wanted, &all).await? {
        return Ok(go_to(&format!("{}{place}", app.base_path)));
    }
    let listed = match &wanted.kind {
        Some(kind) => vec![Kind::from(kind.as_str())],
        None => all.iter().take(KINDS).cloned().collect(),
    };
    let exact = match (&wanted.q, after) {
        (Some(key), None) => exact(&operations, &wanted, key).await?,
        _ => Vec::new(),
    };
    let bounds = Bounds {
        tasks: TASKS,
        looks: LOOKS,
        bytes: FULL,
        read: if wanted.q.is_some() || wanted.error.is_some() {
            200
        } else {
            PIECE
        },
    };
    let filter = wanted.filter(listed, now);
    let (tasks, next): (Vec<Task>, _) = operations.list(&filter, after, bounds).await?;
    let note = if wanted.kind.is_none() && all.len() > KINDS {
        Some("There are tasks of more than 100 kinds, and these are of the first 100 by name: choose a kind.")
    } else if next.is_some() && tasks.len() < TASKS {
        Some("Many tasks have to be looked at for this: go on to the next page.")
    } else {
        None
    };
    let rows = |tasks: Vec<Task>| tasks.into_iter().map(|task| TaskRow::of(task, now)).collect();
    let state = name(wanted.state());
    let next = next.map(|next| wanted.search().append_pair("cursor", &next.to_string()).finish());
    page(&TasksPage {
        heading: heading(&wanted, &state),
        exact: rows(exact),
        tasks: rows(tasks),
        note,
        next,
        is_first: after.is_none(),
        first: wanted.search().finish(),
        kinds: choices(&all, wanted.kind.as_deref()),
        states: TaskState::ALL
            .map(|state| Choice {
                value: name(state),
                text: name(state),
                is_chosen: state == wanted.state(),
            })
            .into(),
        due: DUE
            .map(|(value, text, _)| Choice {
                value: value.to_owned(),
                text: text.to_owned(),
                is_chosen: wanted.due.as_deref() == Some(value),
            })
            .into(),
        filter: form_urlencoded::parse(wanted.search().finish().as_bytes())
            .into_owned()
            .collect(),
        may_change: visitor.may_change() && matches!(wanted.state(), TaskState::Scheduled | TaskState::Dead),
        is_dead: wanted.state() == TaskState::Dead,
        frame: Frame::new(&app, Tab::Tasks, Some(visitor)),
        error: wanted.error,
        kind: wanted.kind,
        q: wanted.q.unwrap_or_default(),
    })
}

/// What else was meant by what was searched for: an id, or a kind.
async fn elsewhere(
    operations: &Operations,
    wanted: &Wanted,
    kinds: &[Kind],
) -> Result<Option<String>, Problem> {
    let Some(q) = &wanted.q else {
        return Ok(None);
    };
    if let Ok(id) = q.parse::<TaskId>()
        && found(operations, Target::Id(id)).await?.is_some()
    {
        return Ok(Some(format!("/tasks/{id}")));
    }
    if wanted.kind.is_none() && kinds.iter().any(|kind| kind.as_str() == q) {
        let of_kind = Wanted {
            q: None,
            kind: Some(q.clone()),
            ..wanted.clone()
        };
        return Ok(Some(format!("/tasks?{}", of_kind.search().finish())));
    }
    Ok(None)
}

async fn found(operations: &Operations, target: Target) -> Result<Option<Task>, Problem> {
    match operations.find(target).await {
        Ok(task) => Ok(Some(task)),
        Err(Refusal::NoTask) => Ok(None),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Those of whatever state that have a key: of the kind that was chosen, or of all.
async fn exact(operations: &Operations, wanted: &Wanted, key: &str) -> Result<Vec<Task>, Problem> {
    // What is too long to be a key may still begin no key.
    if Key::from(key).check().is_err() {
        return Ok(Vec::new());
    }
    let kinds = match &wanted.kind {
        Some(kind) => vec![kind.clone()],
        None => {
            let kinds = operations.kinds(None, KINDS).await?;
            kinds.into_iter().map(|kind| kind.kind).collect()
        }
    };
    let mut tasks = Vec::new();
    for kind in kinds {
        let target = Target::Key(kind.into(), key.into());
        tasks.extend(found(operations, target).await?);
    }
    Ok(tasks)
}

fn heading(wanted: &Wanted, state: &str) -> String {
    let mut text = format!("{state} tasks");
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

/// The kinds to choose from, the chosen one among them.
pub(super) fn choices(kinds: &[Kind], chosen: Option<&str>) -> Vec<Choice> {
    let mut names: Vec<&str> = kinds.iter().map(Kind::as_str).collect();
    names.extend(chosen.filter(|chosen| !names.contains(chosen)).as_slice());
    let choice = |name: &str| Choice {
        value: name.to_owned(),
        text: name.to_owned(),
        is_chosen: chosen == Some(name),
    };
    names.into_iter().map(choice).collect()
}
