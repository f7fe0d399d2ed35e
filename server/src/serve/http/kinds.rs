//! Which kinds of tasks there are, and which of them wait.

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse as _, Response};
use delayline::Kind;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::access::Caller;
use super::body::{self, Body, Search};
use super::problem::{Problem, Refusals};
use super::verbs::Nothing;
use crate::operations::{KindView, PausedView};
use crate::schemas;
use crate::time::Time;

/// Which kinds to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    /// The last kind of the page before.
    #[param(value_type = Option<schemas::Kind>)]
    after: Option<String>,
    /// 100 unless it is said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// How many kinds a page has at the most, and unless it is said.
const MOST: usize = 500;
const USUAL: usize = 100;

#[derive(Serialize, ToSchema)]
pub(super) struct KindListing {
    kinds: Vec<KindView>,
}

/// The kinds of which there are tasks, by name, in which states, and which are paused.
#[utoipa::path(
    get,
    path = "/v1/kinds",
    operation_id = "list_kinds",
    tag = "kinds",
    params(Listed),
    responses((status = 200, description = "The kinds", body = KindListing), Refusals)
)]
pub(super) async fn list(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Search(listed): Search<Listed>,
) -> Result<Response, Problem> {
    let limit = body::limit(listed.limit, USUAL, MOST)?;
    let after = listed.after.map(Kind::from);
    let kinds = caller.operations(&app).kinds(after.as_ref(), limit).await?;
    Ok(Json(KindListing { kinds }).into_response())
}

/// For how long a kind is paused, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Pause {
    /// Else until it is resumed.
    until: Option<Time>,
    /// For people; up to 1,000 bytes.
    #[serde(default)]
    #[schema(max_length = 1000)]
    reason: String,
}

/// Lets the tasks of a kind wait: within a second no worker starts any of them. Paused again, it has the new time and
/// reason.
#[utoipa::path(
    post,
    path = "/v1/kinds/{kind}/pause",
    tag = "kinds",
    params(("kind" = schemas::Kind, Path, description = "The kind")),
    request_body = Pause,
    responses((status = 200, description = "It is paused", body = PausedView), Refusals)
)]
pub(super) async fn pause(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(kind): Path<String>,
    Body(pause): Body<Pause>,
) -> Result<Response, Problem> {
    let until = pause.until.map(|Time(until)| until);
    let operations = caller.operations(&app);
    let paused = operations.pause(&kind.into(), until, &pause.reason).await?;
    Ok(Json(paused).into_response())
}

/// Whether a kind had been paused.
#[derive(Serialize, ToSchema)]
pub(super) struct Resumed {
    was_paused: bool,
}

/// Lets the tasks of a paused kind run again.
#[utoipa::path(
    post,
    path = "/v1/kinds/{kind}/resume",
    tag = "kinds",
    params(("kind" = schemas::Kind, Path, description = "The kind")),
    request_body = Nothing,
    responses((status = 200, description = "It is not paused any more", body = Resumed), Refusals)
)]
pub(super) async fn resume(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(kind): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Response, Problem> {
    let was_paused = caller.operations(&app).resume(&kind.into()).await?;
    Ok(Json(Resumed { was_paused }).into_response())
}
