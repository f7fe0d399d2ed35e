//! A task, and what was answered about it, as JSON.

use std::collections::BTreeMap;

use axum::Json;
use axum::http::header::ETAG;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use delayline::{Answer, Scheduled, Task, Timestamp};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::access::Caller;
use super::problem::Problem;
use super::texts;
use crate::reserved;
use crate::serve::config::Right;
use crate::serve::depth::{DEEPEST, depth};

/// A task as others see it: times in RFC 3339, UTC.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Task)]
pub(crate) struct TaskView {
    #[schema(value_type = texts::TaskId)]
    id: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[schema(value_type = StateName)]
    state: delayline::State,
    #[serde(serialize_with = "time")]
    #[schema(value_type = texts::Time)]
    due_at: Timestamp,
    #[serde(serialize_with = "time")]
    #[schema(value_type = texts::Time)]
    planned_at: Timestamp,
    version: u64,
    attempt: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>)]
    max_attempts: Option<u32>,
    stalls: u32,
    hops: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    /// Not for callers without the right to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = BTreeMap<String, String>)]
    headers: Option<BTreeMap<String, String>>,
    /// As it is, if it is JSON of up to 120 levels.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// In Base64, if it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    payload_base64: Option<String>,
    #[serde(serialize_with = "time")]
    #[schema(value_type = texts::Time)]
    created_at: Timestamp,
    #[serde(serialize_with = "time")]
    #[schema(value_type = texts::Time)]
    updated_at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "time_if_any")]
    #[schema(value_type = Option<texts::Time>)]
    finished_at: Option<Timestamp>,
}

/// The states of a task, as their names.
#[derive(ToSchema)]
#[serde(rename_all = "lowercase")]
#[schema(as = State)]
#[allow(dead_code, reason = "only its description is used")]
pub(super) enum StateName {
    Scheduled,
    Running,
    Done,
    Dead,
    Cancelled,
}

/// A payload that is JSON, or its bytes in Base64; also of JSON that is so deep that a reader could not read the answer.
fn shown(payload: Vec<u8>) -> (Option<Box<RawValue>>, Option<String>) {
    match serde_json::from_slice(&payload) {
        Ok(json) if depth(&payload) <= DEEPEST => (Some(json), None),
        Ok(_) | Err(_) => (None, Some(STANDARD.encode(payload))),
    }
}

pub(super) fn time<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(time)
}

pub(super) fn time_if_any<S: Serializer>(at: &Option<Timestamp>, serializer: S) -> Result<S::Ok, S::Error> {
    match at {
        Some(at) => time(at, serializer),
        None => serializer.serialize_none(),
    }
}

impl TaskView {
    pub(crate) fn without_payload(task: Task) -> Self {
        Self::with(task, |_| (None, None))
    }

    /// What a caller sees of a task that it may not read: neither its payload nor its headers.
    pub(super) fn bare(task: Task) -> Self {
        Self {
            headers: None,
            ..Self::without_payload(task)
        }
    }

    /// The task, as this caller sees it.
    pub(super) fn seen_by(caller: &Caller, task: Task) -> Self {
        match caller.may(Right::Read) {
            true => task.into(),
            false => Self::bare(task),
        }
    }

    /// `shown` gives the payload as it is shown: as JSON, or in Base64.
    fn with(task: Task, shown: impl FnOnce(Vec<u8>) -> (Option<Box<RawValue>>, Option<String>)) -> Self {
        let (payload, payload_base64) = shown(task.payload);
        Self {
            id: task.id.to_string(),
            kind: task.kind.to_string(),
            key: task.key.map(|key| key.to_string()),
            state: task.state,
            due_at: task.due_at,
            planned_at: task.planned_at,
            version: task.version,
            attempt: task.attempt,
            max_attempts: task.max_attempts,
            stalls: task.stalls,
            hops: task.hop,
            owner: task.owner,
            last_error: task.last_error,
            headers: Some(reserved::shown(task.headers)),
            payload,
            payload_base64,
            created_at: task.created_at,
            updated_at: task.updated_at,
            finished_at: task.finished_at,
        }
    }
}

impl From<Task> for TaskView {
    fn from(task: Task) -> Self {
        Self::with(task, shown)
    }
}

/// What was answered, in a word, and the task as it is now.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Answered {
    /// `new`, `existing`, `replaced`, `running`, `done`, `too_late`, `finished`, `conflict` or `not_found`.
    answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskView>,
}

/// The version of a task, as `If-Match` wants it back.
pub(super) fn etag(version: u64) -> Option<HeaderValue> {
    HeaderValue::from_str(&format!("\"{version}\"")).ok()
}

/// A body about a task of this version.
pub(super) fn tagged(status: StatusCode, version: u64, body: impl Serialize) -> Response {
    let mut response = (status, Json(body)).into_response();
    if let Some(etag) = etag(version) {
        response.headers_mut().insert(ETAG, etag);
    }
    response
}

/// What came of a task that was scheduled: the status, and the body.
pub(super) fn scheduled(caller: &Caller, scheduled: Scheduled) -> (StatusCode, u64, Answered) {
    let answer = scheduled.word();
    let (status, task) = match scheduled {
        Scheduled::New(task) => (StatusCode::CREATED, task),
        Scheduled::Existing(task) | Scheduled::Replaced(task) => (StatusCode::OK, task),
        Scheduled::Running(task) => (StatusCode::CONFLICT, task),
    };
    let version = task.version;
    let body = Answered {
        answer,
        task: Some(TaskView::seen_by(caller, task)),
    };
    (status, version, body)
}

/// What a verb answered. `expected`: the request said which version it must be.
pub(super) fn changed(caller: &Caller, answer: Answer, expected: bool) -> Response {
    let body = Answered {
        answer: answer.word(),
        task: answer.task().cloned().map(|task| TaskView::seen_by(caller, task)),
    };
    let (status, detail) = match answer {
        Answer::Done(task) => return tagged(StatusCode::OK, task.version, body),
        Answer::TooLate(_) => (StatusCode::CONFLICT, "it is too late: a worker has the task"),
        Answer::Finished(_) => (StatusCode::CONFLICT, "the task has ended"),
        Answer::Conflict(_) if expected => (
            StatusCode::PRECONDITION_FAILED,
            "the task is not of the version that If-Match names",
        ),
        Answer::Conflict(_) => (
            StatusCode::CONFLICT,
            "the task is not dead, or another live one has its key",
        ),
        Answer::NotFound => (StatusCode::NOT_FOUND, "there is no such task"),
    };
    refused(status, detail, body)
}

/// A refusal that tells of a task.
pub(super) fn refused(status: StatusCode, detail: &str, body: Answered) -> Response {
    match serde_json::to_value(body) {
        Ok(body) => Problem::answered(status, detail, body).into_response(),
        Err(_) => Problem::new(status, detail).into_response(),
    }
}
