//! Whether the server is alive, and whether it can do its work.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;

use super::Shared;

/// For how long a part may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Ready {
    ready: bool,
    parts: Vec<Part>,
}

/// A server that this one cannot do without.
#[derive(Serialize)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) ready: bool,
}

/// `GET /healthz`
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// `GET /readyz`
pub(super) async fn ready(State(app): State<Shared>) -> Response {
    let parts = parts(&app).await;
    let ready = parts.iter().all(|part| part.ready);
    let status = match ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(Ready { ready, parts })).into_response()
}

/// Whether each of them answers.
pub(super) async fn parts(app: &Shared) -> Vec<Part> {
    let mut parts = vec![part(app.store.name(), app.store.check()).await];
    for backend in &app.backends {
        parts.push(part(backend.name(), backend.health()).await);
    }
    parts
}

/// Why it is not ready is for the log: who asks here needs no token.
async fn part(name: &'static str, asked: impl Future<Output = Result<(), delayline::Error>>) -> Part {
    let ready = match tokio::time::timeout(LIMIT, asked).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(part = name, %error, "the server is not ready");
            false
        }
        Err(_) => {
            tracing::warn!(
                part = name,
                "the server is not ready, as this part does not answer"
            );
            false
        }
    };
    Part { name, ready }
}
