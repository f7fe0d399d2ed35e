//! Whether the server is alive, and whether it can do its work.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use super::{App, Shared};
use crate::operations::Part;

#[derive(Serialize)]
struct Ready {
    /// Whether the store answers.
    ready: bool,
    /// Whether another part does not, without which the interface goes on.
    degraded: bool,
    parts: Vec<Part>,
}

/// `GET /healthz`
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// `GET /readyz`
pub(super) async fn ready(State(app): State<Shared>) -> Response {
    let parts = app.parts().await;
    // The store is the first.
    let ready = parts.first().is_some_and(|store| store.ready);
    let degraded = parts.iter().skip(1).any(|part| !part.ready);
    let status = match ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let ready = Ready {
        ready,
        degraded,
        parts,
    };
    (status, Json(ready)).into_response()
}

impl App {
    /// Says whether each part answers. Topics are a part only where some are not known to be there: all others are looked at
    /// when they are published to.
    pub(super) async fn parts(&self) -> Vec<Part> {
        let topics = (!self.current().topics.are_seen()).then_some(("topics", false));
        self.health.parts(topics.into_iter().collect()).await
    }
}
