//! What can be done with a task that is there.

use axum::extract::{Extension, Path, State};
use axum::http::header::IF_MATCH;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use delayline::store::{Action, Expect, Target};
use delayline::{Answer, Scheduled, Shift, TaskId};
use serde::Deserialize;
use utoipa::ToSchema;

use super::Shared;
use super::access::Caller;
use super::answer::{Answered, changed, refused, scheduled, tagged};
use super::body::Body;
use super::idempotency::not_named;
use super::problem::{Problem, Refusals};
use super::schedule::when;
use crate::reason::Reason;
use crate::schemas;
use crate::span::Span;
use crate::time::Time;

/// A body without anything in it.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Nothing {}

/// Why, at the most.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Plain {
    reason: Option<Reason>,
}

/// Another time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Move {
    reason: Option<Reason>,
    /// From now. Either this or `at`.
    after: Option<Span>,
    /// Either this or `after`.
    at: Option<Time>,
}

/// A time span, signed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct By {
    reason: Option<Reason>,
    #[schema(value_type = schemas::SignedSpan)]
    by: String,
}

/// What `If-Match` says.
fn expected(headers: &HeaderMap) -> Result<Expect, Problem> {
    let Some(given) = headers.get(IF_MATCH) else {
        return Ok(Expect::Anything);
    };
    let text = given.to_str().unwrap_or_default();
    let version = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    match version.and_then(|version| version.parse().ok()) {
        Some(version) => Ok(Expect::Version(version)),
        None if text == "*" => Ok(Expect::Anything),
        None => Err(Problem::invalid(
            "If-Match",
            text,
            "allowed are * and the ETag of the task, such as \"3\" in its quotation marks",
        )),
    }
}

/// A verb on the task of a path, with a body of its own, which says what is done.
macro_rules! verb {
    ($(#[$doc:meta])* $name:ident, $path:literal, $body:ident, |$given:ident| $action:expr) => {
        $(#[$doc])*
        #[utoipa::path(
            post,
            path = $path,
            tag = "tasks",
            params(
                ("kind" = schemas::Kind, Path, description = "The kind of the task"),
                ("key" = schemas::Key, Path, description = "The caller's own name for it"),
                ("If-Match" = inline(Option<schemas::Version>), Header, description = "Of which version it must be")
            ),
            request_body = $body,
            responses(
                (status = 200, description = "`done`: the task is changed", body = Answered, headers(("ETag" = String))),
                (status = 404, description = "`not_found`", body = Problem, content_type = "application/problem+json"),
                (status = 409, description = "`too_late`, `finished` or `conflict`: nothing was changed", body = Problem, content_type = "application/problem+json"),
                (status = 412, description = "`conflict`: the task is not of the version that If-Match names", body = Problem, content_type = "application/problem+json"),
                Refusals
            )
        )]
        pub(super) async fn $name(
            State(app): State<Shared>,
            Extension(caller): Extension<Caller>,
            Path((kind, key)): Path<(String, String)>,
            headers: HeaderMap,
            Body(given): Body<$body>,
        ) -> Result<Response, Problem> {
            let expect = expected(&headers)?;
            not_named(&headers)?;
            let $given = given;
            let action = $action;
            let operations = caller.operations(&app).because($given.reason);
            let target = Target::Key(kind.into(), key.into());
            let answer = operations.change(target, expect, action).await?;
            Ok(changed(&caller, answer, expect != Expect::Anything))
        }
    };
}

verb!(
    /// Cancels a task: after `done` it never runs.
    cancel, "/v1/tasks/{kind}/{key}/cancel", Plain,
    |given| Action::Cancel
);
verb!(
    /// Makes a task due now.
    run, "/v1/tasks/{kind}/{key}/run", Plain,
    |given| Action::RunNow
);
verb!(
    /// Gives a dead task another life, due now.
    redrive, "/v1/tasks/{kind}/{key}/redrive", Plain,
    |given| Action::Redrive
);
verb!(
    /// Gives a dead task up for good: it is cancelled, and removed when its history is over.
    dismiss, "/v1/tasks/{kind}/{key}/dismiss", Plain,
    |given| Action::Dismiss
);
verb!(
    /// Moves a task to another time.
    reschedule, "/v1/tasks/{kind}/{key}/reschedule", Move,
    |given| Action::Reschedule(when(given.after, given.at)?)
);
verb!(
    /// Moves a task by a time span.
    shift, "/v1/tasks/{kind}/{key}/shift", By,
    |given| Action::Shift(signed(&given.by)?)
);

/// A time span with its sign.
pub(super) fn signed(by: &str) -> Result<Shift, Problem> {
    let shift = crate::span::signed(by);
    shift.ok_or_else(|| Problem::invalid("by", by, "allowed is a sign and a time span, such as +10m or -2h"))
}

/// Runs a task that has ended once more, as a new one that is due now: of the same kind, payload, headers and number of
/// attempts, and of the same key unless a live task has it.
#[utoipa::path(
    post,
    path = "/v1/tasks/{kind}/{key}/rerun",
    tag = "tasks",
    params(
        ("kind" = schemas::Kind, Path, description = "The kind of the task"),
        ("key" = schemas::Key, Path, description = "The caller's own name for it")
    ),
    request_body = Plain,
    responses(
        (status = 201, description = "`new`", body = Answered, headers(("ETag" = String))),
        (status = 404, description = "`not_found`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`conflict`: the task has not ended", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn rerun(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path((kind, key)): Path<(String, String)>,
    headers: HeaderMap,
    body: Body<Plain>,
) -> Result<Response, Problem> {
    run_again(
        &app,
        &caller,
        Target::Key(kind.into(), key.into()),
        &headers,
        body,
    )
    .await
}

/// The same of the task of an id.
#[utoipa::path(
    post,
    path = "/v1/tasks/id/{id}/rerun",
    tag = "tasks",
    params(("id" = schemas::TaskId, Path, description = "The id of the task")),
    request_body = Plain,
    responses(
        (status = 201, description = "`new`", body = Answered, headers(("ETag" = String))),
        (status = 404, description = "`not_found`", body = Problem, content_type = "application/problem+json"),
        (status = 409, description = "`conflict`: the task has not ended", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn rerun_by_id(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    headers: HeaderMap,
    body: Body<Plain>,
) -> Result<Response, Problem> {
    let id: TaskId = id.parse()?;
    run_again(&app, &caller, Target::Id(id), &headers, body).await
}

async fn run_again(
    app: &Shared,
    caller: &Caller,
    target: Target,
    headers: &HeaderMap,
    Body(Plain { reason }): Body<Plain>,
) -> Result<Response, Problem> {
    not_named(headers)?;
    Ok(match caller.operations(app).rerun(target, reason).await? {
        Answer::Done(task) => {
            let (status, version, body) = scheduled(caller, Scheduled::New(task));
            tagged(status, version, body)
        }
        Answer::Conflict(task) => {
            let answer = Answer::Conflict(task);
            let detail = "the task has not ended, so it still comes by itself";
            refused(StatusCode::CONFLICT, detail, Answered::of(caller, &answer))
        }
        answer => changed(caller, answer, false),
    })
}
