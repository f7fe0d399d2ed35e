//! What requests bring.

use axum::extract::rejection::QueryRejection;
use axum::extract::{FromRequest, FromRequestParts, Query, Request};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::http::request::Parts;
use bytes::Bytes;
use serde::de::DeserializeOwned;

use super::problem::Problem;
use super::upload::unread;

/// A body that is a JSON object. An empty one is as `{}`.
pub(super) struct Body<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = read(request, state).await?;
        // Its fields would be taken by their places.
        if body.trim_ascii_start().starts_with(b"[") {
            let detail = "the body cannot be used: it is an array, and allowed is an object";
            return Err(Problem::new(StatusCode::BAD_REQUEST, detail));
        }
        parse(&body).map(Self)
    }
}

/// A body of JSON, be it an object or an array. An empty one is as `{}`.
pub(super) struct OneOrMany<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for OneOrMany<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let body = read(request, state).await?;
        parse(&body).map(Self)
    }
}

async fn read<S: Send + Sync>(request: Request, state: &S) -> Result<Bytes, Problem> {
    let type_of = request
        .headers()
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let is_json = type_of.is_none_or(|type_of| {
        let essence = type_of.split(';').next().unwrap_or_default().trim();
        // What curl says of any body.
        ["application/json", "application/x-www-form-urlencoded"].contains(&essence)
            || essence.ends_with("+json")
    });
    if !is_json {
        let detail = "the body is not JSON, says its Content-Type: allowed is application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, detail));
    }
    let body = Bytes::from_request(request, state)
        .await
        .map_err(|rejection| unread(&rejection, rejection.status()))?;
    Ok(match body.is_empty() {
        true => Bytes::from_static(b"{}"),
        false => body,
    })
}

/// What JSON says, or the field in which it goes wrong.
fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut json = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut json);
    let refused = |field: String, cause: serde_json::Error| match field.as_str() {
        "." => Problem::new(
            StatusCode::BAD_REQUEST,
            format!("the body cannot be used: {cause}"),
        ),
        field => Problem::new(
            StatusCode::BAD_REQUEST,
            format!("{field} cannot be used: {cause}"),
        ),
    };
    let value = parsed.map_err(|error| refused(error.path().to_string(), error.into_inner()))?;
    json.end().map_err(|error| refused(".".to_owned(), error))?;
    Ok(value)
}

/// How many are wanted: `usual` unless it is said, and 1 to `most`.
pub(super) fn limit(given: Option<usize>, usual: usize, most: usize) -> Result<usize, Problem> {
    let limit = given.unwrap_or(usual);
    match (1..=most).contains(&limit) {
        true => Ok(limit),
        false => Err(Problem::invalid(
            "limit",
            limit,
            format!("allowed are 1 to {most}"),
        )),
    }
}

/// What stands behind the question mark.
pub(super) struct Search<T>(pub(super) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Search<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let Query(search) =
            Query::from_request_parts(parts, state)
                .await
                .map_err(|rejection: QueryRejection| {
                    Problem::new(StatusCode::BAD_REQUEST, rejection.body_text())
                })?;
        Ok(Self(search))
    }
}
