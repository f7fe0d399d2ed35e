//! Tasks that are there.

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use delayline::{Page, Target, Task, TaskId, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::answer::{StateName, TaskView, tagged};
use super::body::{self, Search};
use super::listing;
use super::problem::{Problem, Refusals};
use super::schedule::Time;

/// The live task of a kind and key, else the one that was live last.
#[utoipa::path(
    get,
    path = "/v1/tasks/{kind}/{key}",
    tag = "tasks",
    params(("kind" = String, Path, description = "The kind of the task"), ("key" = String, Path, description = "The caller's own name for it")),
    responses(
        (status = 200, description = "The task", body = TaskView, headers(("ETag" = String))),
        (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn by_key(
    State(app): State<Shared>,
    Path((kind, key)): Path<(String, String)>,
) -> Result<Response, Problem> {
    found(app.scheduler.find((kind, key)).await?)
}

/// The task of an id.
#[utoipa::path(
    get,
    path = "/v1/tasks/id/{id}",
    tag = "tasks",
    params(("id" = String, Path, description = "A UUID")),
    responses(
        (status = 200, description = "The task", body = TaskView, headers(("ETag" = String))),
        (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn by_id(State(app): State<Shared>, Path(id): Path<String>) -> Result<Response, Problem> {
    let id: TaskId = id.parse()?;
    found(app.scheduler.find(Target::Id(id)).await?)
}

fn found(task: Option<Task>) -> Result<Response, Problem> {
    let task = task.ok_or_else(|| Problem::new(StatusCode::NOT_FOUND, "there is no such task"))?;
    Ok(tagged(StatusCode::OK, task.version, TaskView::from(task)))
}

/// Which tasks to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    kind: String,
    /// `scheduled` unless it is said.
    #[param(value_type = Option<StateName>)]
    state: Option<delayline::State>,
    /// Due then or later.
    #[param(value_type = Option<String>, format = DateTime)]
    due_after: Option<Time>,
    /// Due before then.
    #[param(value_type = Option<String>, format = DateTime)]
    due_before: Option<Time>,
    /// 50 unless it is said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Of the page before.
    cursor: Option<String>,
}

/// How many tasks a page has at the most, and unless it is said.
const MOST: usize = 500;
const USUAL: usize = 50;

#[derive(Serialize, ToSchema)]
pub(super) struct Listing {
    tasks: Vec<TaskView>,
    /// Where the next page begins; none after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// A page of tasks of a kind and state, by due time.
#[utoipa::path(
    get,
    path = "/v1/tasks",
    tag = "tasks",
    params(Listed),
    responses((status = 200, description = "The tasks", body = Listing), Refusals)
)]
pub(super) async fn list(
    State(app): State<Shared>,
    Search(listed): Search<Listed>,
) -> Result<Response, Problem> {
    let limit = body::limit(listed.limit, USUAL, MOST)?;
    let state = listed.state.unwrap_or(delayline::State::Scheduled);
    let mut page = Page::new(listed.kind, state);
    if let Some(Time(time)) = listed.due_after {
        page = page.due_from(time);
    }
    if let Some(Time(time)) = listed.due_before {
        page = page.due_before(time);
    }
    if let Some(cursor) = listed.cursor {
        page.after = Some(place(&cursor).ok_or_else(|| {
            Problem::invalid(
                "cursor",
                cursor,
                "allowed is the cursor of the page before, as it was given",
            )
        })?);
    }
    let (tasks, goes_on) = listing::tasks(&app.scheduler, page, limit).await?;
    let cursor = tasks.last().filter(|_| goes_on).map(cursor);
    let tasks = tasks.into_iter().map(TaskView::from).collect();
    Ok(Json(Listing { tasks, cursor }).into_response())
}

fn cursor(last: &Task) -> String {
    URL_SAFE_NO_PAD.encode(format!("{}.{}", last.due_at.as_millis(), last.id))
}

fn place(cursor: &str) -> Option<(Timestamp, TaskId)> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(cursor).ok()?).ok()?;
    let (due_at, id) = text.split_once('.')?;
    Some((Timestamp::from_millis(due_at.parse().ok()?), id.parse().ok()?))
}
