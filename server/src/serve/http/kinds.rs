//! Which kinds of tasks there are.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use delayline::Kind;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::answer::StateName;
use super::body::{self, Search};
use super::problem::{Problem, Refusals};
use crate::kinds::page;

/// Which kinds to list.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Listed {
    /// The last kind of the page before.
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
}

#[derive(Serialize, ToSchema)]
pub(super) struct KindListing {
    kinds: Vec<KindView>,
}

/// The kinds of which there are tasks, by name, and in which states.
#[utoipa::path(
    get,
    path = "/v1/kinds",
    tag = "kinds",
    params(Listed),
    responses((status = 200, description = "The kinds", body = KindListing), Refusals)
)]
pub(super) async fn list(
    State(app): State<Shared>,
    Search(listed): Search<Listed>,
) -> Result<Response, Problem> {
    let limit = body::limit(listed.limit, USUAL, MOST)?;
    let after: Option<Kind> = listed.after.map(Kind::from);
    let found = page(&*app.store, after.as_ref(), limit).await?;
    let view = |(kind, states): crate::kinds::Found| KindView {
        kind: kind.to_string(),
        states,
    };
    let kinds = found.into_iter().map(view).collect();
    Ok(Json(KindListing { kinds }).into_response())
}
