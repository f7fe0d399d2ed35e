//! What is answered before there is a store.

use std::time::Duration;

use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::problem::Problem;
use super::serving::serve;

/// For how long the store may take to open, before requests are answered without it.
const SOON: Duration = Duration::from_millis(500);
/// For how long requests that are under way then may take to end.
const LAST_ANSWERS: Duration = Duration::from_secs(1);

/// How many connections are open at once, which only ask whether the server is there.
const CONNECTIONS: usize = 256;

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
    let (stop, stopping) = watch::channel(false);
    let router = router(base_path, store);
    let mut serving = tokio::spawn(serve(listener, router, CONNECTIONS, stopping));
    let opened = opening.await;
    let _ = stop.send(true);
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
