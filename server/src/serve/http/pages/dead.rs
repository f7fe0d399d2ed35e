//! Tasks that were given up, by why.

use std::collections::BTreeMap;

use askama::Template;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use delayline::{Kind, State as TaskState, Task};

use super::super::Shared;
use super::super::problem::Problem;
use super::fields::Fields;
use super::frame::{Frame, Tab, page};
use super::visitor::Visitor;
use super::wanted::{Choice, Wanted, choices, cursor, kinds};
use crate::digits::grouped;
use crate::operations::{Bounds, KINDS, LEAN};
use crate::time::now;

/// How many tasks are looked at for a page.
const LOOKS: usize = 2_000;
/// How many are read at once.
const PIECE: usize = 32;
/// So much of an error tells it from others.
const SHOWN: usize = 300;

/// What is read at once, and a task of each kind that waits for its turn.
pub(super) fn held(_: &Request) -> usize {
    (PIECE + KINDS) * LEAN
}

#[derive(Debug, Template)]
#[template(path = "dead.html")]
struct DeadPage {
    frame: Frame,
    kinds: Vec<Choice>,
    groups: Vec<Group>,
    looked: String,
    next: Option<String>,
    is_first: bool,
    first: String,
}

/// Dead tasks of a kind whose last attempts failed for the same reason.
#[derive(Debug)]
struct Group {
    kind: String,
    error: String,
    tasks: usize,
    /// One of them.
    id: String,
    label: String,
    /// Those that it stands for, as a search.
    search: String,
    /// Whether the errors may go on after what is shown.
    is_cut: bool,
    /// Whether a change is of these alone, so that it need not be counted first.
    is_exact: bool,
}

impl Group {
    fn count(&self) -> String {
        grouped(self.tasks)
    }

    /// Tells whether no other error of the kind may have this one in it, so that a change by this text is of these alone.
    fn stands_alone(&self, groups: &[Self]) -> bool {
        let mut others = groups
            .iter()
            .filter(|other| other.kind == self.kind && other.error != self.error);
        // Of one that is cut not all is known.
        !others.any(|other| other.error.contains(&self.error) || other.is_cut)
    }
}

/// What is kept of a task while others are looked at.
struct Seen {
    kind: Kind,
    error: String,
    is_cut: bool,
    id: String,
    label: String,
}

impl From<Task> for Seen {
    fn from(task: Task) -> Self {
        let id = task.id.to_string();
        let error = task.last_error.unwrap_or_default();
        let (error, is_cut) = searched(&error);
        Self {
            kind: task.kind,
            error: error.to_owned(),
            is_cut,
            label: task.key.map_or_else(|| id.clone(), |key| key.to_string()),
            id,
        }
    }
}

/// The beginning of an error as a search has it, up to what no form of a browser brings back as it was; and whether the
/// error goes on.
fn searched(error: &str) -> (&str, bool) {
    let error = error.trim();
    let shown = &error[..error.floor_char_boundary(SHOWN)];
    let shown = shown.split(['\r', '\0']).next().unwrap_or_default();
    (shown.trim_end(), shown.len() < error.len())
}

fn groups(seen: Vec<Seen>, are_all: bool) -> Vec<Group> {
    let mut groups: BTreeMap<(Kind, String), Group> = BTreeMap::new();
    for Seen {
        kind,
        error,
        is_cut,
        id,
        label,
    } in seen
    {
        let wanted = Wanted {
            kind: Some(kind.to_string()),
            state: Some(TaskState::Dead),
            error: Some(error.clone()).filter(|error| !error.is_empty()),
            ..Wanted::default()
        };
        let group = groups
            .entry((kind, error))
            .or_insert_with_key(|(kind, error)| Group {
                kind: kind.to_string(),
                error: error.clone(),
                tasks: 0,
                id,
                label,
                search: wanted.search().finish(),
                is_cut: false,
                is_exact: false,
            });
        group.tasks += 1;
        group.is_cut |= is_cut;
    }
    let mut groups: Vec<_> = groups.into_values().collect();
    for at in 0..groups.len() {
        groups[at].is_exact = are_all && groups[at].stands_alone(&groups);
    }
    groups.sort_by_key(|group| std::cmp::Reverse(group.tasks));
    groups
}

/// `GET /dead`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    fields: Fields,
) -> Result<Response, Problem> {
    let wanted = Wanted {
        kind: fields.one("kind").map(str::to_owned),
        state: Some(TaskState::Dead),
        ..Wanted::default()
    };
    let operations = visitor.caller.operations(&app);
    let after = cursor(&fields)?;
    let all = kinds(&operations, TaskState::Dead).await?;
    let listed = match &wanted.kind {
        Some(kind) => vec![Kind::from(kind.as_str())],
        None => all.iter().take(KINDS).cloned().collect(),
    };
    let bounds = Bounds {
        tasks: LOOKS,
        looks: LOOKS,
        payloads: None,
        read: PIECE,
    };
    let filter = wanted.filter(listed, now());
    let (seen, next): (Vec<Seen>, _) = operations.list(&filter, after, bounds).await?;
    let first = || {
        let mut search = url::form_urlencoded::Serializer::new(String::new());
        if let Some(kind) = &wanted.kind {
            search.append_pair("kind", kind);
        }
        search
    };
    page(&DeadPage {
        frame: Frame::new(&app, Tab::Dead, Some(visitor)),
        kinds: choices(&all, wanted.kind.as_deref()),
        looked: grouped(seen.len()),
        groups: groups(seen, next.is_none() && after.is_none() && all.len() <= KINDS),
        next: next.map(|next| first().append_pair("cursor", &next.to_string()).finish()),
        is_first: after.is_none(),
        first: first().finish(),
    })
}
