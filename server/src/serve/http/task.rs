//! Tasks that are there.

use axum::Json;
use axum::extract::{Extension, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use delayline::store::Target;
use delayline::{Kind, TaskId};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::access::Caller;
use super::answer::tagged;
use super::body::{self, Search};
use super::problem::{Problem, Refusals};
use crate::operations::{Bounds, ExplainedView, Filter, KINDS, Operations, StateName, TaskView};
use crate::schemas;
use crate::time::Time;

/// The live task of a kind and key, else the one that was made last.
#[utoipa::path(
    get,
    path = "/v1/tasks/{kind}/{key}",
    tag = "tasks",
    params(("kind" = schemas::Kind, Path, description = "The kind of the task"), ("key" = schemas::Key, Path, description = "The caller's own name for it"), ShowQuery),
    responses(
        (status = 200, description = "The task; with `explain` more of it", body = ExplainedView, headers(("ETag" = String))),
        (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn by_key(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((kind, key)): Path<(String, String)>,
    Search(shown): Search<ShowQuery>,
) -> Result<Response, Problem> {
    found(&app, &caller, Target::Key(kind.into(), key.into()), shown).await
}

/// The task of an id.
#[utoipa::path(
    get,
    path = "/v1/tasks/id/{id}",
    tag = "tasks",
    params(("id" = schemas::TaskId, Path, description = "The id of the task"), ShowQuery),
    responses(
        (status = 200, description = "The task; with `explain` more of it", body = ExplainedView, headers(("ETag" = String))),
        (status = 404, description = "There is none", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn by_id(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    Search(shown): Search<ShowQuery>,
) -> Result<Response, Problem> {
    let id: TaskId = id.parse()?;
    found(&app, &caller, Target::Id(id), shown).await
}

/// What is shown of a task.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct ShowQuery {
    /// With 1 also what has happened to it, where its wake-up is, and what comes next.
    #[param(minimum = 0, maximum = 1)]
    explain: Option<u8>,
}

async fn found(app: &Shared, caller: &Caller, target: Target, shown: ShowQuery) -> Result<Response, Problem> {
    let operations = caller.operations(app);
    match shown.explain.unwrap_or(0) {
        0 => {
            let task = operations.find(target).await?;
            Ok(tagged(StatusCode::OK, task.version, TaskView::from(task)))
        }
        1 => {
            let explained = operations.explain(target).await?;
            let version = explained.task.version;
            Ok(tagged(StatusCode::OK, version, ExplainedView::from(explained)))
        }
        other => Err(Problem::invalid("explain", other, "allowed are 0 and 1")),
    }
}

/// Which tasks to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    /// Else of all kinds, of which up to 100 may have tasks in this state.
    #[param(value_type = Option<schemas::Kind>)]
    kind: Option<String>,
    /// `scheduled` unless it is said.
    #[param(value_type = Option<StateName>)]
    state: Option<delayline::State>,
    /// Due then or later.
    due_after: Option<Time>,
    /// Due before then.
    due_before: Option<Time>,
    /// With a key that begins so. Up to 10,000 tasks are looked at for it, so that a page may have few of them or none and
    /// still a cursor to go on from.
    key_prefix: Option<String>,
    /// Whose last error has this in it; looked for as a `key_prefix` is.
    error: Option<String>,
    /// 50 unless it is said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
    /// Of the page before.
    cursor: Option<String>,
}

/// How many tasks a page has at the most, and unless it is said.
const MOST: usize = 500;
const USUAL: usize = 50;
/// How many tasks are looked at for a page.
const LOOKS: usize = 10_000;
/// How many tasks are read at once.
const PIECE: usize = 16;
/// After so many bytes of payloads a page ends.
const FULL: usize = 16 << 20;

/// How many bytes a page may hold while it is made, as a payload has up to 1 MiB: a task of each kind waits for its turn.
pub(super) fn held(request: &Request) -> usize {
    let search = request.uri().query().unwrap_or_default();
    let names_a_kind = search.split('&').any(|part| part.starts_with("kind="));
    let kinds = if names_a_kind { 0 } else { KINDS };
    FULL + ((PIECE + kinds) << 20)
}

#[derive(Serialize, ToSchema)]
pub(super) struct Listing {
    tasks: Vec<TaskView>,
    /// Where the next page begins; none after the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<String>,
}

/// A page of tasks of a state, of one kind or of all, by due time.
#[utoipa::path(
    get,
    path = "/v1/tasks",
    operation_id = "list_tasks",
    tag = "tasks",
    params(Listed),
    responses((status = 200, description = "The tasks", body = Listing), Refusals)
)]
pub(super) async fn list(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Search(listed): Search<Listed>,
) -> Result<Response, Problem> {
    let limit = body::limit(listed.limit, USUAL, MOST)?;
    let after = listed.cursor.map(|cursor| cursor.parse()).transpose()?;
    let operations = caller.operations(&app);
    let state = listed.state.unwrap_or(delayline::State::Scheduled);
    let kinds = match listed.kind {
        Some(kind) => vec![Kind::from(kind)],
        None => kinds(&operations, state).await?,
    };
    let filter = Filter {
        kinds,
        state,
        due_after: listed.due_after.map(|Time(time)| time),
        due_before: listed.due_before.map(|Time(time)| time),
        key_prefix: listed.key_prefix,
        error: listed.error,
    };
    let bounds = Bounds {
        tasks: limit,
        looks: LOOKS,
        payloads: Some(FULL),
        read: PIECE,
    };
    let (tasks, after) = operations.list(&filter, after, bounds).await?;
    let cursor = after.map(|after| after.to_string());
    Ok(Json(Listing { tasks, cursor }).into_response())
}

/// All kinds of which there are tasks in a state, as far as the caller's token is for them.
async fn kinds(operations: &Operations, state: delayline::State) -> Result<Vec<Kind>, Problem> {
    let kinds = operations.kinds_in(state, None, KINDS + 1).await?;
    match kinds.len() > KINDS {
        true => Err(Problem::invalid(
            "kind",
            "",
            format!(
                "without it allowed are {KINDS} kinds with tasks in this state, and there are more: name a kind"
            ),
        )),
        false => Ok(kinds),
    }
}
