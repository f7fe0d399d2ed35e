//! The least that a server must do to take tasks by `PUT`.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::put;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::net::TcpListener;

use crate::Error;
use crate::bare_rows::{Row, Writer};

/// Before the URL of the database, it makes this program that server.
pub(crate) const ROLE: &str = "--bare-http";

pub(crate) async fn serve(url: &str) -> Result<(), Error> {
    let writer = Writer::start(url).await?;
    let router = Router::new()
        .route("/v1/tasks/{kind}/{key}", put(schedule))
        .with_state(writer);
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("serving http://{}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}

#[derive(Deserialize)]
struct Task {
    #[serde(rename = "after")]
    _after: String,
    payload: Box<RawValue>,
}

async fn schedule(
    State(writer): State<Writer>,
    Path((_kind, key)): Path<(String, String)>,
    Json(task): Json<Task>,
) -> StatusCode {
    let payload = task.payload.get().as_bytes().to_vec();
    match writer.write(vec![Row::new(key, payload)]).await {
        Ok(()) => StatusCode::CREATED,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    }
}
