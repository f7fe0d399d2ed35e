//! What can be done with a task that is there.

use axum::extract::{Extension, Path, State};
use axum::http::header::IF_MATCH;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use delayline::store::{Action, Expect, Target};
use delayline::{Answer, Scheduled, Shift, TaskId};
use serde::Deserialize;
use serde_json::value::RawValue;
use utoipa::{IntoResponses, ToSchema};

use super::Shared;
use super::access::Caller;
use super::answer::{Answered, changed, refused, scheduled, tagged};
use super::body::Body;
use super::conditions;
use super::idempotency::not_named;
use super::problem::{Problem, Refusals};
use super::schedule::when;
use crate::operations::{Edit, given};
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

/// What is changed of a task: a payload, a time, or both.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Edited {
    reason: Option<Reason>,
    /// Any JSON of up to 120 levels of arrays and objects, `null` as well.
    #[serde(default, deserialize_with = "given")]
    #[schema(value_type = Option<serde_json::Value>)]
    payload: Option<Box<RawValue>>,
    /// From now. Not beside `at`.
    after: Option<Span>,
    /// Not beside `after`.
    at: Option<Time>,
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

/// What a verb does with a task.
enum Deed {
    Act(Action),
    Edit(Edit),
}

async fn done(
    app: &Shared,
    caller: &Caller,
    target: Target,
    headers: &HeaderMap,
    reason: Option<Reason>,
    deed: Deed,
) -> Result<Response, Problem> {
    let expect = expected(headers)?;
    conditions::none_but_if_match(headers)?;
    not_named(
        headers,
        "a verb is done once with If-Match, the ETag of the task before it",
    )?;
    let operations = caller.operations(app).because(reason);
    let id = match target {
        Target::Id(id) => Some(id),
        Target::Key(..) => None,
    };
    let answer = match deed {
        Deed::Act(action) => operations.change(target, expect, action).await?,
        Deed::Edit(edit) => operations.edit(target, expect, edit).await?,
    };
    // Else the task is not dead, or the one in the answer has its key.
    let is_other_version = match (&answer, expect) {
        (Answer::Conflict(task), Expect::Version(version)) => {
            task.version != version && id.is_none_or(|id| id == task.id)
        }
        _ => false,
    };
    Ok(changed(caller, answer, is_other_version))
}

/// What a verb may be answered with.
#[derive(IntoResponses)]
#[allow(
    dead_code,
    clippy::large_enum_variant,
    reason = "only its description is used"
)]
enum Outcomes {
    /// `done`: the task is changed
    #[response(status = 200, headers(("ETag" = String)))]
    Done(Answered),
    /// `not_found`
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(Problem),
    /// `too_late`, `finished` or `conflict`: nothing was changed
    #[response(status = 409, content_type = "application/problem+json")]
    NotChanged(Problem),
    /// `conflict`: the task is not of the version that If-Match names
    #[response(status = 412, content_type = "application/problem+json")]
    OtherVersion(Problem),
}

/// What a rerun may be answered with.
#[derive(IntoResponses)]
#[allow(
    dead_code,
    clippy::large_enum_variant,
    reason = "only its description is used"
)]
enum Reruns {
    /// `new`
    #[response(status = 201, headers(("ETag" = String)))]
    New(Answered),
    /// `not_found`
    #[response(status = 404, content_type = "application/problem+json")]
    NotFound(Problem),
    /// `conflict`: the task has not ended
    #[response(status = 409, content_type = "application/problem+json")]
    NotEnded(Problem),
}

/// A verb on the task of a kind and key, and the same on the task of an id, with a body which says what is done.
macro_rules! verb {
    ($(#[$doc:meta])* $name:ident, $by_id:ident, $verb:literal, $body:ident, |$given:ident| $deed:expr) => {
        $(#[$doc])*
        #[utoipa::path(
            post,
            path = concat!("/v1/tasks/{kind}/{key}/", $verb),
            tag = "tasks",
            params(
                ("kind" = schemas::Kind, Path, description = "The kind of the task"),
                ("key" = schemas::Key, Path, description = "The caller's own name for it"),
                ("If-Match" = inline(Option<schemas::Version>), Header, description = "Of which version it must be")
            ),
            request_body = $body,
            responses(Outcomes, Refusals)
        )]
        pub(super) async fn $name(
            State(app): State<Shared>,
            Extension(caller): Extension<Caller>,
            Path((kind, key)): Path<(String, String)>,
            headers: HeaderMap,
            Body($given): Body<$body>,
        ) -> Result<Response, Problem> {
            let deed = $deed;
            let target = Target::Key(kind.into(), key.into());
            done(&app, &caller, target, &headers, $given.reason, deed).await
        }

        $(#[$doc])*
        #[utoipa::path(
            post,
            path = concat!("/v1/tasks/id/{id}/", $verb),
            tag = "tasks",
            params(
                ("id" = schemas::TaskId, Path, description = "The id of the task"),
                ("If-Match" = inline(Option<schemas::Version>), Header, description = "Of which version it must be")
            ),
            request_body = $body,
            responses(Outcomes, Refusals)
        )]
        pub(super) async fn $by_id(
            State(app): State<Shared>,
            Extension(caller): Extension<Caller>,
            Path(id): Path<String>,
            headers: HeaderMap,
            Body($given): Body<$body>,
        ) -> Result<Response, Problem> {
            let deed = $deed;
            let id: TaskId = id.parse()?;
            done(&app, &caller, Target::Id(id), &headers, $given.reason, deed).await
        }
    };
}

verb!(
    /// Cancels a task: after `done` it never runs.
    cancel, cancel_by_id, "cancel", Plain,
    |given| Deed::Act(Action::Cancel)
);
verb!(
    /// Makes a task due now.
    run, run_by_id, "run", Plain,
    |given| Deed::Act(Action::RunNow)
);
verb!(
    /// Gives a dead task another life, due now.
    redrive, redrive_by_id, "redrive", Plain,
    |given| Deed::Act(Action::Redrive)
);
verb!(
    /// Gives a dead task up for good: it is cancelled, and removed when its history is over.
    dismiss, dismiss_by_id, "dismiss", Plain,
    |given| Deed::Act(Action::Dismiss)
);
verb!(
    /// Moves a task to another time; its payload stays.
    reschedule, reschedule_by_id, "reschedule", Move,
    |given| Deed::Act(Action::Reschedule(when(given.after, given.at)?))
);
verb!(
    /// Moves a task by a time span; its payload stays.
    shift, shift_by_id, "shift", By,
    |given| Deed::Act(Action::Shift(signed(&given.by)?))
);
verb!(
    /// Gives a task that waits another payload, another time, or both; what is not said stays as it is.
    edit, edit_by_id, "edit", Edited,
    |given| Deed::Edit(Edit {
        payload: given.payload,
        due: match (given.after, given.at) {
            (None, None) => None,
            (after, at) => Some(when(after, at)?),
        },
    })
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
    responses(Reruns, Refusals)
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
    responses(Reruns, Refusals)
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

/// What a caller has to know who repeats a rerun, or means to guard one.
const ANEW: &str =
    "a rerun makes a new task each time that it comes, which its history tells: see whether it is there";

async fn run_again(
    app: &Shared,
    caller: &Caller,
    target: Target,
    headers: &HeaderMap,
    Body(Plain { reason }): Body<Plain>,
) -> Result<Response, Problem> {
    not_named(headers, ANEW)?;
    conditions::none(headers, &format!("allowed is none; {ANEW}"))?;
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
