//! What this server has done so far.

use axum::Json;
use axum::extract::{Extension, State};
use delayline::stats::Stats;
use serde::Serialize;
use utoipa::ToSchema;

use super::Shared;
use super::access::Caller;
use super::problem::{Problem, Refusals};
use crate::time::Time;

#[derive(Serialize, ToSchema)]
pub(super) struct ServerStats {
    version: &'static str,
    /// By this server's clock.
    started_at: Time,
    /// Counts since then, of this server alone, and how late tasks were started.
    #[schema(value_type = Object)]
    stats: Stats,
}

/// What this server has done since it was started.
#[utoipa::path(
    get,
    path = "/v1/stats",
    operation_id = "show_stats",
    tag = "server",
    responses((status = 200, description = "Counts of this server", body = ServerStats), Refusals)
)]
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
) -> Result<Json<ServerStats>, Problem> {
    caller.reach_all()?;
    Ok(Json(ServerStats {
        version: env!("CARGO_PKG_VERSION"),
        started_at: Time(app.started_at),
        stats: app.scheduler.stats(),
    }))
}
