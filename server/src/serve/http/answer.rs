//! What was answered about a task.

use axum::Json;
use axum::http::header::ETAG;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use delayline::{Answer, Scheduled, Task};
use serde::Serialize;
use utoipa::ToSchema;

use super::access::Caller;
use super::problem::Problem;
use crate::operations::TaskView;
use crate::serve::config::Right;

/// The task, as this caller sees it.
fn seen_by(caller: &Caller, task: Task) -> TaskView {
    match caller.may(Right::Read) {
        true => task.into(),
        false => TaskView::bare(task),
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

impl Answered {
    pub(super) fn without_task(answer: &'static str) -> Self {
        Self { answer, task: None }
    }

    pub(super) fn of(caller: &Caller, answer: &Answer) -> Self {
        Self {
            answer: answer.word(),
            task: answer.task().cloned().map(|task| seen_by(caller, task)),
        }
    }
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

/// What came of a task that was scheduled: the status, its version, and the body.
pub(super) fn scheduled(caller: &Caller, scheduled: Scheduled) -> (StatusCode, u64, Answered) {
    let (status, answer, task) = parts(scheduled);
    let version = task.version;
    let task = Some(seen_by(caller, task));
    (status, version, Answered { answer, task })
}

/// The same of one task of many, without its payload and headers: those of thousands are more than an answer can hold.
pub(super) fn scheduled_among(scheduled: Scheduled) -> (StatusCode, Answered) {
    let (status, answer, task) = parts(scheduled);
    let task = Some(TaskView::bare(task));
    (status, Answered { answer, task })
}

fn parts(scheduled: Scheduled) -> (StatusCode, &'static str, Task) {
    let answer = scheduled.word();
    let (status, task) = match scheduled {
        Scheduled::New(task) => (StatusCode::CREATED, task),
        Scheduled::Existing(task) | Scheduled::Replaced(task) => (StatusCode::OK, task),
        Scheduled::Running(task) => (StatusCode::CONFLICT, task),
    };
    (status, answer, task)
}

/// What a verb answered. `is_other_version`: a conflict is that of the version which the request named.
pub(super) fn changed(caller: &Caller, answer: Answer, is_other_version: bool) -> Response {
    let body = Answered::of(caller, &answer);
    let (status, detail) = match answer {
        Answer::Done(task) => return tagged(StatusCode::OK, task.version, body),
        Answer::TooLate(_) => (StatusCode::CONFLICT, "it is too late: a worker has the task"),
        Answer::Finished(_) => (StatusCode::CONFLICT, "the task has ended"),
        Answer::Conflict(_) if is_other_version => (
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
    Problem::answered(status, detail, body).into_response()
}
