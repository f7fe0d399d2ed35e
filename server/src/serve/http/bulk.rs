//! What can be done with all tasks that match.

mod jobs;
mod work;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::header::LOCATION;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use delayline::store::Action;
use delayline::{Kind, Scheduler};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use self::jobs::Job;
pub(super) use self::jobs::JobView;
pub(crate) use self::jobs::Jobs;
use self::work::Work;
use super::Shared;
use super::access::Caller;
use super::body::{self, Body};
use super::idempotency::not_named;
use super::problem::{Problem, Refusals};
use super::schedule::{Time, when};
use super::texts;
use super::verbs::signed;
use crate::bulk::{Answers, Match, change, ends_the_state, state_for};
use crate::filter::{Bounds, Filter, PAGE};
use crate::reason::Reason;
use crate::reserved;
use crate::span::Span;

/// How many bytes the tasks may have that are in memory at once.
pub(super) const HELD: usize = PAGE << 20;

/// How many tasks a call changes or counts at the most, and unless it is said.
const MOST: usize = 10_000;
const USUAL: usize = 1_000;
/// How many are looked at before a call leaves the rest to go on behind it.
const LOOKS: usize = 10_000;

/// Which tasks.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Matching {
    #[schema(value_type = texts::Kind)]
    kind: String,
    /// Due then or later.
    #[schema(value_type = Option<texts::Time>)]
    due_after: Option<Time>,
    /// Due before then.
    #[schema(value_type = Option<texts::Time>)]
    due_before: Option<Time>,
    /// With a key that begins so. Each task of the kind is looked at for it.
    key_prefix: Option<String>,
    /// Whose last error has this in it. Each task of the kind is looked at for it.
    error: Option<String>,
}

/// A change of all tasks that match.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Bulk {
    filter: Matching,
    #[schema(value_type = Option<texts::Reason>)]
    reason: Option<Reason>,
    /// Changes no more than so many, all of them within the call. A dry run counts up to 1,000 unless it is said.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Only says how many match.
    #[serde(default)]
    dry_run: bool,
}

/// A move of all tasks that match.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkMove {
    filter: Matching,
    #[schema(value_type = Option<texts::Reason>)]
    reason: Option<Reason>,
    /// Changes no more than so many, all of them within the call. A dry run counts up to 1,000 unless it is said.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Only says how many match.
    #[serde(default)]
    dry_run: bool,
    /// From now. Either this or `at`.
    #[schema(value_type = Option<texts::Span>)]
    after: Option<Span>,
    /// Either this or `after`.
    #[schema(value_type = Option<texts::Time>)]
    at: Option<Time>,
}

/// A move of all tasks that match, each by the same time span.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct BulkShift {
    filter: Matching,
    #[schema(value_type = Option<texts::Reason>)]
    reason: Option<Reason>,
    /// Changes no more than so many, all of them within the call. A dry run counts up to 1,000 unless it is said.
    #[schema(minimum = 1, maximum = 10_000)]
    limit: Option<usize>,
    /// Only says how many match.
    #[serde(default)]
    dry_run: bool,
    #[schema(value_type = texts::SignedSpan)]
    by: String,
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
pub(super) struct Known {
    /// The last one first.
    jobs: Vec<JobView>,
}

#[allow(clippy::too_many_arguments, reason = "they are the parts of the request")]
async fn answer(
    app: Shared,
    caller: Caller,
    scheduler: Scheduler,
    filter: Matching,
    limit: Option<usize>,
    dry_run: bool,
    verb: &'static str,
    action: Action,
) -> Result<Response, Problem> {
    let time = |time: Option<Time>| time.map(|Time(time)| time);
    let kind = Kind::from(filter.kind);
    reserved::check_change(&kind, action == Action::Dismiss)?;
    caller.reach(&kind)?;
    let filter = Filter {
        kinds: vec![kind],
        state: state_for(action),
        due_after: time(filter.due_after),
        due_before: time(filter.due_before),
        key_prefix: filter.key_prefix,
        error: filter.error,
    };
    if limit.is_none() && !dry_run {
        return Ok(
            match change_all(&app, scheduler, filter, verb, action, caller.actor()).await? {
                Changed::Within { matched, answers } => Json(BulkAnswered {
                    matched,
                    more: false,
                    answers: Some(answers),
                })
                .into_response(),
                Changed::Behind(job) => accepted(&app, &job),
            },
        );
    }
    let limit = body::limit(limit, USUAL, MOST)?;
    let mut matches: Vec<Match> = filter.find(&app.scheduler, limit + 1).await?;
    let more = matches.len() > limit;
    if more && !dry_run && !ends_the_state(action) {
        // What was moved would match again.
        return Err(Problem::invalid(
            "limit",
            limit,
            "more tasks match than this: allowed is a filter by which they all fit, such as a narrower due_before, or no \
             limit",
        ));
    }
    matches.truncate(limit);
    let answers = match dry_run {
        true => None,
        false => Some(change(&scheduler, &matches, action, |_| ()).await?),
    };
    let matched = matches.len();
    Ok(Json(BulkAnswered {
        matched,
        more,
        answers,
    })
    .into_response())
}

/// What came of a change of all that match.
pub(super) enum Changed {
    /// These were few.
    Within { matched: usize, answers: Answers },
    /// It goes on.
    Behind(Arc<Job>),
}

/// Changes all that match: within the call if these are few, and else behind it.
pub(super) async fn change_all(
    app: &Shared,
    scheduler: Scheduler,
    filter: Filter,
    verb: &'static str,
    action: Action,
    actor: String,
) -> Result<Changed, Problem> {
    let bounds = Bounds {
        tasks: USUAL,
        looks: LOOKS,
        bytes: usize::MAX,
        read: PAGE,
    };
    let (found, after): (Vec<Match>, _) = filter.page(&app.scheduler, None, bounds).await?;
    let Some(after) = after else {
        let answers = change(&scheduler, &found, action, |_| ()).await?;
        let matched = found.len();
        return Ok(Changed::Within { matched, answers });
    };
    let kind = filter.kinds.first().cloned().unwrap_or_else(|| "".into());
    let job = app.jobs.begin(verb, kind, actor)?;
    let work = Work {
        scheduler,
        filter,
        action,
        found,
        after,
    };
    work.start(Arc::clone(app), Arc::clone(&job));
    Ok(Changed::Behind(job))
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
    tag = "bulk",
    responses((status = 200, description = "The last one first", body = Known), Refusals)
)]
pub(super) async fn list(State(app): State<Shared>, Extension(caller): Extension<Caller>) -> Json<Known> {
    let jobs = app.jobs.all(|kind| caller.reaches(kind));
    Json(Known { jobs })
}

/// How far a change in bulk has come, and at its end what came of it.
#[utoipa::path(
    get,
    path = "/v1/bulk/{id}",
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
    let job = app.jobs.find(&id, |kind| caller.reaches(kind))?;
    Ok(Json(job.view()))
}

/// Stops a change in bulk: what it has not asked for by then stays as it is. One that has ended stays as it has.
#[utoipa::path(
    delete,
    path = "/v1/bulk/{id}",
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
    stopped(&app, &caller, &id, caller.actor()).await.map(Json)
}

/// Stops a change in bulk on behalf of `actor`.
pub(super) async fn stopped(
    app: &Shared,
    caller: &Caller,
    id: &str,
    actor: String,
) -> Result<JobView, Problem> {
    let job = app.jobs.find(id, |kind| caller.reaches(kind))?;
    job.stop(actor).await;
    Ok(job.view())
}

/// A change of all tasks that match: `$action` is what is done with each.
macro_rules! bulk {
    ($(#[$doc:meta])* $name:ident, $path:literal, $body:ident { $($field:ident),* }, $action:expr) => {
        $(#[$doc])*
        #[utoipa::path(
            post,
            path = $path,
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
            not_named(&headers)?;
            let $body { filter, reason, limit, dry_run, $($field),* } = given;
            let scheduler = caller.scheduler(&app, reason);
            answer(app, caller, scheduler, filter, limit, dry_run, stringify!($name), $action).await
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
    shift, "/v1/tasks:shift", BulkShift { by }, Action::Shift(signed(by)?)
);
