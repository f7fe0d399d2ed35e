//! What is answered before there is a store.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use super::connection::Listening;
use super::problem::Problem;

/// For how long the store may take to open, before requests are answered without it.
const SOON: Duration = Duration::from_millis(500);
/// For how long requests that are under way then may take to end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// Answers requests while the store, of this name, is being opened: the process is alive, and not ready.
pub(crate) async fn answer_while<T>(
    listener: &std::net::TcpListener,
    base_path: &str,
    store: &'static str,
    opening: impl Future<Output = T>,
) -> std::io::Result<T> {
    tokio::pin!(opening);
    tokio::select! {
        biased;
        opened = &mut opening => return Ok(opened),
        () = sleep(SOON) => {}
    }
    // Another handle of the same socket: connections that are not accepted by it are left to the next one.
    let listener = TcpListener::from_std(listener.try_clone()?)?;
    let (done, is_done) = oneshot::channel::<()>();
    let serving = axum::serve(Listening(listener), router(base_path, store));
    let mut serving = tokio::spawn(
        serving
            .with_graceful_shutdown(async {
                let _ = is_done.await;
            })
            .into_future(),
    );
    let opened = opening.await;
    drop(done);
    if timeout(LAST_ANSWERS, &mut serving).await.is_err() {
        serving.abort();
    }
    Ok(opened)
}

fn router(base_path: &str, store: &'static str) -> Router {
    let at = |path: &str| format!("{base_path}{path}");
    let ready = move || async move {
        let parts = [json!({"name": store, "ready": false})];
        let body = Json(json!({"ready": false, "parts": parts}));
        (StatusCode::SERVICE_UNAVAILABLE, body)
    };
    Router::new()
        .route(&at("/healthz"), get(super::health::alive))
        .route(&at("/readyz"), get(ready))
        .fallback(away)
}

async fn away() -> Response {
    let detail = "the store does not answer, and the server waits for it; nothing was done: ask again";
    let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
    ([(RETRY_AFTER, "1")], problem).into_response()
}
