//! How many tasks are due soon.

use axum::Json;
use axum::extract::Extension;
use axum::response::{IntoResponse as _, Response};
use delayline::{Kind, State};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::Shared;
use super::access::Caller;
use super::body::{self, Search};
use super::problem::{Problem, Refusals};
use crate::operations::Forecast;
use crate::schemas;

/// Of which kinds.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Only this one; else all of which there are scheduled tasks.
    #[param(value_type = Option<schemas::Kind>)]
    kind: Option<String>,
    /// The last kind of the page before; not beside `kind`.
    #[param(value_type = Option<schemas::Kind>)]
    after: Option<String>,
    /// How many kinds: 100 unless it is said.
    #[param(minimum = 1, maximum = 100)]
    limit: Option<usize>,
}

/// How many kinds a page has at the most, and unless it is said: for each, up to 100,000 tasks are counted.
const MOST: usize = 100;

#[derive(Serialize, ToSchema)]
pub(super) struct ForecastListing {
    kinds: Vec<Forecast>,
}

/// How many tasks are due within 5 s, 1, 5 and 15 minutes, 1, 4, 8 and 24 hours, of each kind by name.
#[utoipa::path(
    get,
    path = "/v1/forecast",
    operation_id = "show_forecast",
    tag = "kinds",
    params(Wanted),
    responses((status = 200, description = "What is coming", body = ForecastListing), Refusals)
)]
pub(super) async fn show(
    axum::extract::State(app): axum::extract::State<Shared>,
    Extension(caller): Extension<Caller>,
    Search(wanted): Search<Wanted>,
) -> Result<Response, Problem> {
    let limit = body::limit(wanted.limit, MOST, MOST)?;
    let operations = caller.operations(&app);
    let kinds = match (wanted.kind, wanted.after) {
        (Some(_), Some(after)) => {
            return Err(Problem::invalid(
                "after",
                after,
                "allowed is one of kind and after",
            ));
        }
        (Some(kind), None) => vec![Kind::from(kind)],
        (None, after) => {
            let after = after.map(Kind::from);
            operations
                .kinds_in(State::Scheduled, after.as_ref(), limit)
                .await?
        }
    };
    let kinds = operations.forecast(kinds).await?;
    Ok(Json(ForecastListing { kinds }).into_response())
}
