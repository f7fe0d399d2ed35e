//! Which kinds of tasks there are, and which of them wait.

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::response::{IntoResponse as _, Response};
use delayline::store::Paused;
use delayline::{Kind, Timestamp};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::access::Caller;
use super::answer::{StateName, time, time_if_any};
use super::body::{self, Body, Search};
use super::problem::{Problem, Refusals};
use super::schedule::Time;
use super::texts;
use super::verbs::Nothing;
use crate::kinds::{Found, page};

/// Which kinds to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    /// The last kind of the page before.
    #[param(value_type = Option<texts::Kind>)]
    after: Option<String>,
    /// 100 unless it is said.
    #[param(minimum = 1, maximum = 500)]
    limit: Option<usize>,
}

/// How many kinds a page has at the most, and unless it is said.
const MOST: usize = 500;
const USUAL: usize = 100;

#[derive(Serialize, ToSchema)]
pub(super) struct KindView {
    kind: String,
    /// In which there are tasks of it.
    #[schema(value_type = Vec<StateName>)]
    states: Vec<delayline::State>,
    /// If it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<PausedView>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct KindListing {
    kinds: Vec<KindView>,
}

/// Since when its tasks wait, until when, and why.
#[derive(Serialize, ToSchema)]
#[schema(as = Paused)]
pub(super) struct PausedView {
    #[serde(serialize_with = "time")]
    #[schema(value_type = texts::Time)]
    since: Timestamp,
    /// None: until it is resumed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "time_if_any")]
    #[schema(value_type = Option<texts::Time>)]
    until: Option<Timestamp>,
    reason: String,
    /// Who has paused it, as histories name it; not known of a pause by an earlier release.
    #[serde(skip_serializing_if = "Option::is_none")]
    actor: Option<String>,
}

impl From<Paused> for PausedView {
    fn from(paused: Paused) -> Self {
        Self {
            since: paused.since,
            until: paused.until,
            reason: paused.reason,
            actor: paused.actor,
        }
    }
}

/// The kinds of which there are tasks, by name, in which states, and which are paused.
#[utoipa::path(
    get,
    path = "/v1/kinds",
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
    let after: Option<Kind> = listed.after.map(Kind::from);
    after.as_ref().map_or(Ok(()), Kind::check)?;
    let known = |kind: &Kind| caller.reaches(kind);
    let found = page(&app.scheduler, &*app.store, after.as_ref(), limit, &known).await?;
    let view = |(kind, Found { states, paused }): (Kind, Found)| KindView {
        kind: kind.to_string(),
        states,
        paused: paused.map(PausedView::from),
    };
    let kinds = found.into_iter().map(view).collect();
    Ok(Json(KindListing { kinds }).into_response())
}

/// A kind that this caller may pause and resume.
fn pausable(caller: &Caller, kind: String) -> Result<Kind, Problem> {
    let kind = Kind::from(kind);
    crate::reserved::check(kind.as_str())?;
    caller.reach(&kind)?;
    Ok(kind)
}

/// For how long a kind is paused, and why.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Pause {
    /// Else until it is resumed.
    #[schema(value_type = Option<texts::Time>)]
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
    params(("kind" = texts::Kind, Path, description = "The kind")),
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
    let kind = pausable(&caller, kind)?;
    let scheduler = caller.scheduler(&app, None);
    let paused = scheduler.pause(kind, until, &pause.reason).await?;
    Ok(Json(PausedView::from(paused)).into_response())
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
    params(("kind" = texts::Kind, Path, description = "The kind")),
    request_body = Nothing,
    responses((status = 200, description = "It is not paused any more", body = Resumed), Refusals)
)]
pub(super) async fn resume(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(kind): Path<String>,
    Body(Nothing {}): Body<Nothing>,
) -> Result<Response, Problem> {
    let kind = pausable(&caller, kind)?;
    let was_paused = caller.scheduler(&app, None).resume(kind).await?;
    Ok(Json(Resumed { was_paused }).into_response())
}
