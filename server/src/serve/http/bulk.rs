//! What can be done with all tasks that match.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use delayline::store::Action;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::ToSchema;

use super::Shared;
use super::access::Caller;
use super::body::{self, Body};
use super::conditions;
use super::idempotency::not_named;
use super::problem::{Problem, Refusals};
use super::schedule::when;
use super::verbs::signed;
use crate::operations::{Answers, Changed, Filter, Follower, HELD, Job, JobView, Work, state_for};
use crate::reason::Reason;
use crate::schemas;
use crate::span::Span;
use crate::time::Time;

/// How many tasks a call changes or counts at the most.
const MOST: usize = 10_000;
/// How many a dry run counts unless it is said.
const COUNTED: usize = 1_000;

/// What a caller has to know who repeats a change in bulk, or means to guard one.
const ANEW: &str = "a change in bulk that comes again changes what matches by then, each task only if it is due as it was \
                    found";

/// Which tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Matching {
    #[schema(value_type = schemas::Kind)]
    kind: String,
    /// Due then or later.
    due_after: Option<Time>,
    /// Due before then.
    due_before: Option<Time>,
    /// With a key that begins so. Each task of the kind is looked at for it.
    key_prefix: Option<String>,
    /// Whose last error has this in it. Each task of the kind is looked at for it.
    error: Option<String>,
}

/// The bodies of changes of all tasks that match, each with what its verb needs.
macro_rules! bodies {
    ($($(#[$doc:meta])* $name:ident { $($(#[$attribute:meta])* $field:ident: $type:ty,)* })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Deserialize, ToSchema)]
            #[serde(deny_unknown_fields)]
            pub(super) struct $name {
                filter: Matching,
                reason: Option<Reason>,
                /// Changes no more than so many, all of them within the call. A dry run counts up to 1,000 unless it is said.
                #[schema(minimum = 1, maximum = 10_000)]
                limit: Option<usize>,
                /// Only says how many match.
                #[serde(default)]
                dry_run: bool,
                $($(#[$attribute])* $field: $type,)*
            }
        )*
    };
}

bodies! {
    /// A change of all tasks that match.
    Bulk {}
    /// A move of all tasks that match.
    BulkMove {
        /// From now. Either this or `at`.
        after: Option<Span>,
        /// Either this or `after`.
        at: Option<Time>,
    }
    /// A move of all tasks that match, each by the same time span.
    BulkShift {
        #[schema(value_type = schemas::SignedSpan)]
        by: String,
    }
}

/// What came of a change in bulk.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct BulkAnswered {
    /// How many tasks matched, up to the limit.
    matched: usize,
    /// Whether more match than the limit allows: the same call again changes those.
    more: bool,
    /// How many were answered how; not after a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    answers: Option<Answers>,
}

/// All changes in bulk that a server knows of.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = BulkJobs)]
pub(super) struct BulkJobs {
    /// The last one first.
    jobs: Vec<JobView>,
}

/// What is asked for, beside what is done with each task.
struct Asked {
    filter: Matching,
    reason: Option<Reason>,
    limit: Option<usize>,
    dry_run: bool,
}

impl Asked {
    async fn answer(self, app: &Shared, caller: &Caller, action: Action) -> Result<Response, Problem> {
        let time = |time: Option<Time>| time.map(|Time(time)| time);
        let filter = Filter {
            kinds: vec![self.filter.kind.into()],
            state: state_for(action),
            due_after: time(self.filter.due_after),
            due_before: time(self.filter.due_before),
            key_prefix: self.filter.key_prefix,
            error: self.filter.error,
        };
        let operations = caller.operations(app).because(self.reason);
        if self.dry_run {
            let limit = body::limit(self.limit, COUNTED, MOST)?;
            let (matched, more) = operations.count(&filter, action, limit).await?;
            let answers = None;
            return Ok(Json(BulkAnswered {
                matched,
                more,
                answers,
            })
            .into_response());
        }
        let changed = match self.limit {
            Some(limit) => {
                let limit = body::limit(Some(limit), COUNTED, MOST)?;
                operations.change_some(&filter, action, limit).await?
            }
            None => operations.change_all(filter, action).await?,
        };
        Ok(match changed {
            Changed::Done {
                matched,
                more,
                answers,
            } => {
                let answers = Some(answers);
                Json(BulkAnswered {
                    matched,
                    more,
                    answers,
                })
                .into_response()
            }
            Changed::Begun(work) => accepted(app, &*go_on(app, *work)?),
        })
    }
}

/// Lets the rest of a change go on behind its caller.
pub(super) fn go_on(app: &Shared, work: Work) -> Result<Arc<Job>, Problem> {
    let turns = |job| Turns {
        app: Arc::clone(app),
        job,
    };
    Ok(app.jobs.start(work, turns)?)
}

/// A change takes its turns among the requests that look at many tasks, until it or the server is to stop.
struct Turns {
    app: Shared,
    job: Arc<Job>,
}

impl Follower for Turns {
    type Permit = OwnedSemaphorePermit;

    async fn next_step(&self) -> Option<OwnedSemaphorePermit> {
        let mut stopping = self.app.stopping.clone();
        tokio::select! {
            biased;
            () = self.job.is_to_stop() => None,
            // Also when the sender is gone.
            _ = stopping.wait_for(|stop| *stop) => None,
            room = self.app.room_for_many.wait(HELD) => room,
        }
    }

    fn record(&self, found: usize, answers: &Answers) {
        self.job.record(found, answers);
    }
}

/// Says where it says how far it has come.
fn accepted(app: &Shared, job: &Job) -> Response {
    let location = HeaderValue::from_str(&format!("{}/v1/bulk/{}", app.base_path, job.id));
    let mut response = (StatusCode::ACCEPTED, Json(job.view())).into_response();
    if let Ok(location) = location {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// The changes in bulk that go on at this server, and the last ones that have ended: a hundred in all.
///
/// Those of another server are known to that one alone.
#[utoipa::path(
    get,
    path = "/v1/bulk",
    operation_id = "list_bulk",
    tag = "bulk",
    responses((status = 200, description = "The last one first", body = BulkJobs), Refusals)
)]
pub(super) async fn list(State(app): State<Shared>, Extension(caller): Extension<Caller>) -> Json<BulkJobs> {
    let jobs = app.jobs.list(&caller.operations(&app));
    Json(BulkJobs { jobs })
}

/// How far a change in bulk has come, and at its end what came of it.
#[utoipa::path(
    get,
    path = "/v1/bulk/{id}",
    operation_id = "show_bulk",
    tag = "bulk",
    params(("id" = String, Path, description = "As it was given")),
    responses(
        (status = 200, description = "How far it has come", body = JobView),
        (status = 404, description = "This server knows of no such change", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn show(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<JobView>, Problem> {
    let job = app.jobs.find(&id, &caller.operations(&app))?;
    Ok(Json(job.view()))
}

/// Stops a change in bulk: what it has not asked for by then stays as it is. One that has ended stays as it has.
#[utoipa::path(
    delete,
    path = "/v1/bulk/{id}",
    operation_id = "stop_bulk",
    tag = "bulk",
    params(("id" = String, Path, description = "As it was given")),
    responses(
        (status = 200, description = "How far it had come: it goes on no more", body = JobView),
        (status = 404, description = "This server knows of no such change", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn stop(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Result<Json<JobView>, Problem> {
    let operations = caller.operations(&app);
    let job = app.jobs.find(&id, &operations)?;
    job.stop(operations.actor()).await;
    Ok(Json(job.view()))
}

/// A change of all tasks that match: `$action` is what is done with each.
macro_rules! bulk {
    ($(#[$doc:meta])* $name:ident, $path:literal, $body:ident { $($field:ident),* }, $action:expr) => {
        $(#[$doc])*
        #[utoipa::path(
            post,
            path = $path,
            operation_id = concat!(stringify!($name), "_all"),
            tag = "bulk",
            request_body = $body,
            responses(
                (status = 200, description = "How many matched, and what came of it", body = BulkAnswered),
                (status = 202, description = "More than 1,000 match, or more have to be looked at: it goes on", body = JobView, headers(("Location" = String, description = "Where it says how far it has come"))),
                Refusals
            )
        )]
        pub(super) async fn $name(
            State(app): State<Shared>,
            Extension(caller): Extension<Caller>,
            headers: HeaderMap,
            Body(given): Body<$body>,
        ) -> Result<Response, Problem> {
            not_named(&headers, ANEW)?;
            conditions::none(&headers, &format!("allowed is none; {ANEW}"))?;
            let $body { filter, reason, limit, dry_run, $($field),* } = given;
            let asked = Asked { filter, reason, limit, dry_run };
            asked.answer(&app, &caller, $action).await
        }
    };
}

bulk!(
    /// Cancels all scheduled tasks that match.
    cancel, "/v1/tasks:cancel", Bulk {}, Action::Cancel
);
bulk!(
    /// Makes all scheduled tasks that match due now.
    run, "/v1/tasks:run", Bulk {}, Action::RunNow
);
bulk!(
    /// Gives all dead tasks that match another life, due now.
    redrive, "/v1/tasks:redrive", Bulk {}, Action::Redrive
);
bulk!(
    /// Gives all dead tasks that match up for good.
    dismiss, "/v1/tasks:dismiss", Bulk {}, Action::Dismiss
);
bulk!(
    /// Moves all scheduled tasks that match to another time.
    reschedule, "/v1/tasks:reschedule", BulkMove { after, at }, Action::Reschedule(when(after, at)?)
);
bulk!(
    /// Moves each scheduled task that matches by a time span.
    shift, "/v1/tasks:shift", BulkShift { by }, Action::Shift(signed(&by)?)
);
