//! The processes that hold tasks.

use std::collections::BTreeMap;

use askama::Template;
use axum::Extension;
use axum::extract::{Request, State};
use axum::response::Response;
use delayline::{State as TaskState, Task, Timestamp};

use super::super::Shared;
use super::super::problem::Problem;
use super::frame::{Frame, Tab, page};
use super::visitor::Visitor;
use super::wanted::{Wanted, kinds};
use super::words::Moment;
use crate::digits::grouped;
use crate::operations::{Bounds, KINDS, LEAN};

/// How many running tasks are looked at.
const LOOKS: usize = 2_000;
/// How many are read at once.
const PIECE: usize = 32;

/// What is read at once, and a task of each kind that waits for its turn.
pub(super) fn held(_: &Request) -> usize {
    (PIECE + KINDS) * LEAN
}

#[derive(Debug, Template)]
#[template(path = "workers.html")]
struct WorkersPage {
    frame: Frame,
    processes: Vec<ProcessRow>,
    /// Up to how many tasks were looked at, if there are more.
    looked: Option<String>,
    here: Here,
}

/// What this server does by itself.
#[derive(Debug)]
struct Here {
    name: String,
    since: Moment,
    /// The kinds that it delivers.
    kinds: Vec<String>,
}

/// A process with tasks.
#[derive(Debug)]
struct ProcessRow {
    name: String,
    is_here: bool,
    /// How many tasks of each kind it holds.
    kinds: Vec<(String, String)>,
    tasks: String,
    /// Since when it has held the first.
    since: Moment,
    /// The last time until which a lease of it holds.
    until: Moment,
    /// Whether it has let all its leases end.
    is_gone: bool,
}

/// What is kept of a running task.
struct Held {
    owner: String,
    kind: String,
    since: Timestamp,
    until: Timestamp,
}

impl From<Task> for Held {
    fn from(task: Task) -> Self {
        Self {
            owner: task.owner.unwrap_or_default(),
            kind: task.kind.to_string(),
            // A renewal is no change.
            since: task.updated_at,
            until: task.wake_at.unwrap_or(task.updated_at),
        }
    }
}

fn process(name: String, tasks: &[Held], here: &str, now: Timestamp) -> ProcessRow {
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for task in tasks {
        *kinds.entry(&task.kind).or_default() += 1;
    }
    let since = tasks.iter().map(|task| task.since).min().unwrap_or(now);
    let until = tasks.iter().map(|task| task.until).max().unwrap_or(now);
    ProcessRow {
        is_here: name == here,
        name,
        kinds: kinds
            .into_iter()
            .map(|(kind, count)| (kind.to_owned(), grouped(count)))
            .collect(),
        tasks: grouped(tasks.len()),
        since: Moment::of(since, now),
        until: Moment::of(until, now),
        is_gone: until <= now,
    }
}

/// `GET /workers`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
) -> Result<Response, Problem> {
    let operations = visitor.caller.operations(&app);
    let running = Wanted::default().of_state(Some(TaskState::Running));
    let all = kinds(&operations, TaskState::Running).await?;
    let now = app.store.now().await?;
    let bounds = Bounds {
        tasks: LOOKS,
        looks: LOOKS,
        payloads: None,
        read: PIECE,
    };
    let filter = running.filter(running.kinds_among(&all), now);
    let (held, next): (Vec<Held>, _) = operations.list(&filter, None, bounds).await?;
    let are_more = next.is_some() || all.len() > KINDS;
    let looked = are_more.then(|| grouped(held.len()));
    let mut by_owner: BTreeMap<String, Vec<Held>> = BTreeMap::new();
    for task in held {
        by_owner.entry(task.owner.clone()).or_default().push(task);
    }
    let current = app.current();
    let delivered = current.delivered_here.iter();
    let here = Here {
        name: app.name.clone(),
        since: Moment::of(app.started_at, now),
        kinds: delivered
            .filter(|kind| operations.reaches(kind))
            .map(ToString::to_string)
            .collect(),
    };
    let processes = by_owner.into_iter();
    page(&WorkersPage {
        frame: Frame::new(&app, Tab::Workers, Some(visitor)),
        processes: processes
            .map(|(name, tasks)| process(name, &tasks, &here.name, now))
            .collect(),
        looked,
        here,
    })
}
