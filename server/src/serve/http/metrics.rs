//! Figures for Prometheus.

use std::time::Duration;

use axum::extract::{Extension, State};
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse as _, Response};
use tokio::time::timeout;

use super::Shared;
use super::access::Caller;
use super::problem::Problem;

/// For how long the store may take to say what only it knows: half of the time that a scraper usually has.
const LIMIT: Duration = Duration::from_secs(5);

/// `GET /metrics`
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
) -> Result<Response, Problem> {
    caller.reach_all()?;
    let scheduler = app.scheduler.clone();
    // Goes on without a scrape that has no time for it, and is there for the next one.
    let sampling = tokio::spawn(async move { scheduler.sample_metrics().await });
    match timeout(LIMIT, sampling).await {
        Ok(Ok(Err(error))) => tracing::warn!(
            %error,
            "the store does not say how many tasks there are, so these figures are missing, or two minutes old at the \
             most"
        ),
        Ok(_) => {}
        Err(_) => tracing::warn!(
            "the store takes long to say how many tasks there are, so these figures come with a later scrape"
        ),
    }
    let type_of = [(CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")];
    Ok((type_of, app.figures.render()).into_response())
}
