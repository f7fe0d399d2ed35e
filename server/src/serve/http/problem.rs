//! What is answered when something cannot be done.

use axum::Json;
use axum::extract::Request;
use axum::http::header::{CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use delayline::Error;
use serde::Serialize;
use utoipa::openapi::{RefOr, Schema};
use utoipa::{IntoResponses, PartialSchema, ToSchema};

use super::answer::Answered;
use crate::operations::Refusal;

/// An error as RFC 9457 has it, naming field, value and what is allowed where a request is at fault.
#[derive(Debug, Serialize)]
#[serde(transparent)]
pub(super) struct Problem(Box<Content>);

#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct Content {
    title: &'static str,
    #[serde(serialize_with = "as_number")]
    #[schema(value_type = u16)]
    status: StatusCode,
    detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    field: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    allowed: Option<String>,
    /// What a verb answered, where that is why.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    answer: Option<Answered>,
}

impl PartialSchema for Problem {
    fn schema() -> RefOr<Schema> {
        Content::schema()
    }
}

impl ToSchema for Problem {
    fn name() -> std::borrow::Cow<'static, str> {
        "Problem".into()
    }

    fn schemas(schemas: &mut Vec<(String, RefOr<Schema>)>) {
        Content::schemas(schemas);
    }
}

/// What any request may be answered with.
#[derive(IntoResponses)]
#[allow(dead_code, reason = "only its description is used")]
pub(super) enum Refusals {
    /// The request cannot be used; nothing was done.
    #[response(status = 400, content_type = "application/problem+json")]
    Invalid(Problem),
    /// There is no token that is known.
    #[response(status = 401, content_type = "application/problem+json")]
    Unknown(Problem),
    /// The token has not this right.
    #[response(status = 403, content_type = "application/problem+json")]
    Forbidden(Problem),
    /// The body has come too slowly; nothing was done.
    #[response(status = 408, content_type = "application/problem+json")]
    Slow(Problem),
    /// The body is too large.
    #[response(status = 413, content_type = "application/problem+json")]
    TooLarge(Problem),
    /// The body is not JSON.
    #[response(status = 415, content_type = "application/problem+json")]
    NoJson(Problem),
    /// Many tokens that are not known came from this address; or as many changes in bulk go on as may. Nothing was done.
    #[response(status = 429, content_type = "application/problem+json", headers(("Retry-After" = u32, description = "In seconds")))]
    TooMany(Problem),
    /// The store does not answer, and what was asked for may have been done or not; or the server has no room, and nothing was.
    #[response(status = 503, content_type = "application/problem+json", headers(("Retry-After" = u32, description = "In seconds")))]
    Away(Problem),
}

fn as_number<S: serde::Serializer>(status: &StatusCode, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u16(status.as_u16())
}

impl Problem {
    pub(super) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self(Box::new(Content {
            title: status.canonical_reason().unwrap_or("Error"),
            status,
            detail: detail.into(),
            field: None,
            value: None,
            allowed: None,
            answer: None,
        }))
    }

    pub(super) fn status(&self) -> StatusCode {
        self.0.status
    }

    pub(super) fn detail(&self) -> &str {
        &self.0.detail
    }

    /// The request cannot be used; nothing was done.
    pub(super) fn invalid(field: &str, value: impl ToString, allowed: impl Into<String>) -> Self {
        let (value, allowed) = (shortened(value.to_string()), allowed.into());
        let mut problem = Self::new(
            StatusCode::BAD_REQUEST,
            format!("{field} is {value:?}: {allowed}"),
        );
        problem.0.field = Some(field.to_owned());
        problem.0.value = Some(value);
        problem.0.allowed = Some(allowed);
        problem
    }

    /// A verb was too late, or what it expected was not so.
    pub(super) fn answered(status: StatusCode, detail: &str, answer: Answered) -> Self {
        let mut problem = Self::new(status, detail);
        problem.0.answer = Some(answer);
        problem
    }
}

/// So much of a value is shown.
const SHOWN: usize = 200;

fn shortened(mut value: String) -> String {
    if let Some((end, _)) = value.char_indices().nth(SHOWN) {
        value.truncate(end);
        value.push('…');
    }
    value
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Invalid {
                field,
                value,
                allowed,
            } => Self::invalid(field, value, allowed),
            error => {
                let status = match error.is_transient() {
                    true => StatusCode::SERVICE_UNAVAILABLE,
                    false => StatusCode::INTERNAL_SERVER_ERROR,
                };
                Self::new(status, Refusal::Error(error).for_caller())
            }
        }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let status = match refusal {
            Refusal::Error(error) => return error.into(),
            Refusal::NoTask | Refusal::NoJob => StatusCode::NOT_FOUND,
            Refusal::OtherKinds(_) => StatusCode::FORBIDDEN,
            Refusal::TooManyJobs(_) => StatusCode::TOO_MANY_REQUESTS,
            Refusal::TooManyMatch(_) => StatusCode::BAD_REQUEST,
        };
        Self::new(status, refusal.to_string())
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::SERVICE_UNAVAILABLE || status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

/// Gives each request an id, its caller's or one of ours, says it in the log beside what happens, and in the answer.
pub(super) async fn name_request(request: Request, next: Next) -> Response {
    use tracing::Instrument as _;
    const NAME: HeaderName = HeaderName::from_static("x-request-id");
    let given = request.headers().get(&NAME).filter(|id| id.len() <= 100).cloned();
    let made = || HeaderValue::from_str(&format!("{:016x}", fastrand::u64(..)));
    let id = given.or_else(|| made().ok());
    let span =
        tracing::info_span!("request", id = ?id, method = %request.method(), path = request.uri().path());
    let mut response = next.run(request).instrument(span).await;
    let headers = response.headers_mut();
    headers.extend(id.map(|id| (NAME, id)));
    // Neither a browser nor what is between keeps what it is about, or takes it for what it is not.
    headers
        .entry(CACHE_CONTROL)
        .or_insert(HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // What a layer answered in plain text.
    let is_plain = response.status().is_client_error() || response.status().is_server_error();
    let type_of = response.headers().get(CONTENT_TYPE);
    let is_meant = |type_of: &HeaderValue| {
        let begins = |with: &[u8]| type_of.as_bytes().starts_with(with);
        begins(b"application/") || begins(b"text/html")
    };
    if is_plain && !type_of.is_some_and(is_meant) {
        let status = response.status();
        let detail = match status {
            StatusCode::SERVICE_UNAVAILABLE => {
                "it took too long; what was asked for may have been done or not: ask again, or look first where it \
                 would act twice"
            }
            StatusCode::PAYLOAD_TOO_LARGE => "the body is larger than http.body_limit allows",
            _ => "the request cannot be read",
        };
        let said = Problem::new(status, detail).into_response();
        let (parts, body) = said.into_parts();
        *response.body_mut() = body;
        response.headers_mut().remove(CONTENT_LENGTH);
        response.headers_mut().extend(parts.headers);
    }
    response
}
