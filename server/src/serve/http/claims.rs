//! Tasks for workers in any language.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use delayline::claims::{ClaimId, Claimed};
use delayline::store::Target;
use delayline::{Error, Kind, Task, defaults};
use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::Caller;
use super::admission::{full, sent_with};
use super::answer::Answered;
use super::body::Body;
use super::problem::{Problem, Refusals};
use super::{App, Shared};
use crate::operations::TaskView;
use crate::reserved;
use crate::schemas;
use crate::serve::test_clock::TestClock;
use crate::span::Span;

const DONE: &str = "done";
const LOST: &str = "lost";

/// For how long a request may wait for a task.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How many kinds a request for tasks may name: many may wait at once.
const MOST_KINDS: usize = 100;

/// What a worker wants.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    #[schema(value_type = Vec<schemas::Kind>, min_items = 1, max_items = 100)]
    kinds: Vec<String>,
    /// How many tasks at the most; 1 unless it is said.
    #[schema(minimum = 1, maximum = 500)]
    max: Option<usize>,
    /// For how long to wait if nothing is due, up to `60s`; not at all unless it is said.
    wait: Option<Span>,
    /// For how long a claim holds unless it is extended: `1s` to `1d`; `30s` unless it is said.
    lease: Option<Span>,
    /// Who works, for people; the name of the token unless it is said.
    #[schema(value_type = Option<schemas::Owner>)]
    owner: Option<String>,
}

#[derive(Serialize, ToSchema)]
pub(super) struct Given {
    claims: Vec<ClaimView>,
}

/// A task that is claimed.
#[derive(Serialize, ToSchema)]
#[schema(as = Claim)]
pub(super) struct ClaimView {
    /// Names the claim: to be given back when it ends, or is extended.
    #[schema(value_type = schemas::ClaimId)]
    claim: String,
    task: TaskView,
}

impl ClaimView {
    /// Shows the payload that it takes.
    fn of(claimed: &mut Claimed) -> Self {
        let payload = std::mem::take(&mut claimed.task.payload);
        let mut task = claimed.task.clone();
        task.payload = payload;
        Self {
            claim: claimed.claim.to_string(),
            task: task.into(),
        }
    }
}

/// That a claim held, and has ended or goes on.
#[derive(Serialize, ToSchema)]
pub(super) struct Held {
    /// `done`.
    answer: &'static str,
}

/// Claims whose tasks are done.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AllDone {
    /// Each as it was given.
    #[schema(value_type = Vec<schemas::ClaimId>, min_items = 1, max_items = 500)]
    claims: Vec<String>,
}

/// What came of claims, in their order.
#[derive(Serialize, ToSchema)]
pub(super) struct Answers {
    /// Of each `done`, or `lost`: it did not hold any more, and nothing was changed.
    answers: Vec<&'static str>,
}

/// An attempt that failed.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Retry {
    /// When to try again, from now; else its kind says.
    after: Option<Span>,
    /// Why it failed.
    #[serde(default)]
    reason: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Snooze {
    /// When to come again, from now.
    after: Span,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Discard {
    /// Why it can never succeed.
    reason: String,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Extend {
    /// For how long the claim holds from now on.
    lease: Span,
}

/// Claims tasks that are due, or waits for one.
///
/// A claim that is neither ended nor extended within its lease is lost, and its task is given to another worker. A client
/// that goes away while it waits has claimed nothing.
#[utoipa::path(
    post,
    path = "/v1/claims",
    tag = "claims",
    request_body = Wanted,
    responses((status = 200, description = "The claims; none, if nothing was due", body = Given), Refusals)
)]
pub(super) async fn take(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Body(wanted): Body<Wanted>,
) -> Result<Response, Problem> {
    let wait = wanted.wait.map_or(Duration::ZERO, |Span(wait)| wait);
    if wait > LONGEST_WAIT {
        return Err(Problem::invalid("wait", Span(wait), "allowed is up to 60s"));
    }
    let Span(lease) = wanted.lease.unwrap_or(Span(Duration::from_secs(30)));
    if wanted.kinds.len() > MOST_KINDS {
        let allowed = format!("allowed are 1 to {MOST_KINDS} kinds");
        return Err(Problem::invalid("kinds", wanted.kinds.len(), allowed));
    }
    let mut replaced = app.replaced_for(&caller);
    let current = app.current();
    let kinds: Vec<_> = wanted.kinds.into_iter().map(Kind::from).collect();
    for kind in &kinds {
        reserved::check(kind.as_str())?;
        caller.reach(kind)?;
        if current.delivered_here.contains(kind) {
            let allowed = "allowed are kinds that are not delivered otherwise: the server delivers the tasks of this one itself";
            return Err(Problem::invalid("kinds", kind, allowed));
        }
    }
    let owner = wanted.owner.unwrap_or_else(|| caller.name().to_owned());
    let max = wanted.max.unwrap_or(1);
    let claims = current.claims_of(&caller);
    let mut claimed = match wait.is_zero() {
        true => claims.take(&kinds, max, lease, &owner).await?,
        false => {
            let mut stopping = app.stopping.clone();
            let waiting = async |wait| claims.wait(&kinds, max, lease, &owner, wait).await;
            tokio::select! {
                claimed = waiting_by(app.test_clock.as_deref(), wait, waiting) => claimed?,
                // Its client asks another server.
                _ = stopping.wait_for(|stopping| *stopping) => Vec::new(),
                // It asks again, by what holds from now on.
                _ = replaced.changed() => Vec::new(),
            }
        }
    };
    if claimed.is_empty() && claims.is_full() {
        return Ok(full(
            "as many bytes are on their way to workers as http.memory_limit allows; nothing was claimed: ask again",
        ));
    }
    app.claim_kinds.remember(&claimed);
    let given = claimed.iter_mut().map(ClaimView::of).collect();
    let given = serde_json::to_vec(&Given { claims: given }).map_err(|error| {
        tracing::error!(%error, "claims could not be written as JSON; they end with their leases");
        Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "the claims could not be written",
        )
    })?;
    let mut response = Response::new(sent_with(given, claimed));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    Ok(response)
}

/// Waits for so long by the clock of the tasks; where that stands still, by real time, which is what a client means.
async fn waiting_by<W>(
    test_clock: Option<&TestClock>,
    wait: Duration,
    waiting: impl FnOnce(Duration) -> W,
) -> Result<Vec<Claimed>, Error>
where
    W: Future<Output = Result<Vec<Claimed>, Error>>,
{
    let Some(test_clock) = test_clock else {
        return waiting(wait).await;
    };
    let waiting = test_clock.watch(waiting(Duration::MAX));
    tokio::time::timeout(wait, waiting)
        .await
        .unwrap_or_else(|_| Ok(Vec::new()))
}

/// The tasks of these claims are done: for who has several, in one call.
///
/// Each is as if it ended alone: that some are lost does not hinder the others. After a 503 some may have ended; the same
/// call may be repeated, and then says `lost` of those.
#[utoipa::path(
    post,
    path = "/v1/claims:done",
    tag = "claims",
    request_body = AllDone,
    responses((status = 200, description = "What came of each", body = Answers), Refusals)
)]
pub(super) async fn all_done(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Body(AllDone { claims }): Body<AllDone>,
) -> Result<Json<Answers>, Problem> {
    if claims.is_empty() || claims.len() > defaults::BATCH {
        let allowed = format!("allowed are 1 to {} claims", defaults::BATCH);
        return Err(Problem::invalid("claims", claims.len(), allowed));
    }
    let claims: Vec<ClaimId> = claims
        .iter()
        .map(|claim| claim.parse())
        .collect::<Result<_, _>>()?;
    let ends = claims.into_iter().map(async |claim| {
        Ok::<_, Error>(may_end(&app, &caller, claim).await? && app.current().claims.done(claim).await?)
    });
    let held = join_all(ends).await;
    let answer = |held: Result<bool, Error>| held.map(|held| if held { DONE } else { LOST });
    let answers = held.into_iter().map(answer).collect::<Result<_, _>>()?;
    Ok(Json(Answers { answers }))
}

macro_rules! ends {
    ($(#[$doc:meta])* $name:ident, $path:literal, $body:ty, |$claims:ident, $claim:ident, $given:pat_param| $end:expr) => {
        $(#[$doc])*
        #[utoipa::path(
            post,
            path = $path,
            tag = "claims",
            params(("claim" = schemas::ClaimId, Path, description = "The claim, as it was given")),
            request_body = $body,
            responses(
                (status = 200, description = "`done`", body = Held),
                (status = 409, description = "`lost`: the claim does not hold any more, and nothing was changed", body = Problem, content_type = "application/problem+json"),
                Refusals
            )
        )]
        pub(super) async fn $name(
            State(app): State<Shared>,
            Extension(caller): Extension<Caller>,
            Path(claim): Path<String>,
            Body($given): Body<$body>,
        ) -> Result<Response, Problem> {
            let $claim: ClaimId = claim.parse()?;
            let current = app.current();
            let $claims = &current.claims;
            held(may_end(&app, &caller, $claim).await? && $end.await?)
        }
    };
}

ends!(
    /// The task is done.
    done, "/v1/claims/{claim}/done", super::verbs::Nothing, |claims, claim, _| claims.done(claim)
);
ends!(
    /// The attempt failed: try again, as long as the kind of the task allows; else it is dead.
    retry, "/v1/claims/{claim}/retry", Retry, |claims, claim, Retry { after, reason }| {
        claims.retry(claim, reason, after.map(|Span(after)| after))
    }
);
ends!(
    /// Not yet: come again, and count no attempt.
    snooze, "/v1/claims/{claim}/snooze", Snooze, |claims, claim, Snooze { after: Span(after) }| {
        claims.snooze(claim, after)
    }
);
ends!(
    /// It can never succeed: dead at once.
    discard, "/v1/claims/{claim}/discard", Discard, |claims, claim, Discard { reason }| claims.discard(claim, reason)
);
ends!(
    /// It takes longer.
    extend, "/v1/claims/{claim}/extend", Extend, |claims, claim, Extend { lease: Span(lease) }| {
        claims.extend(claim, lease)
    }
);

/// Whether a claim may be one of this caller's: not of a task that the server delivers itself, nor of a kind that its token
/// is not for. Of a claim that another server has given the task is read for it.
async fn may_end(app: &Shared, caller: &Caller, claim: ClaimId) -> Result<bool, Error> {
    if !app.must_know_kinds(caller) {
        return Ok(true);
    }
    // Whatever has been configured since: it was given to a worker.
    if let Some(kind) = app.claim_kinds.kind_of(claim) {
        return Ok(caller.reaches(&kind));
    }
    let task = app.store.find(&Target::Id(claim.task_id())).await?;
    Ok(task.is_none_or(|Task { kind, .. }| {
        let is_ours = reserved::is_reserved(kind.as_str()) || app.current().delivered_here.contains(&kind);
        !is_ours && caller.reaches(&kind)
    }))
}

impl App {
    /// Whether it depends on a claim's kind who may end it; not where every kind may be claimed by all.
    fn must_know_kinds(&self, caller: &Caller) -> bool {
        !self.current().delivered_here.is_empty() || !caller.reaches_all()
    }
}

fn held(held: bool) -> Result<Response, Problem> {
    if held {
        return Ok(Json(Held { answer: DONE }).into_response());
    }
    Err(Problem::answered(
        StatusCode::CONFLICT,
        "the claim does not hold any more: its lease has ended and another worker has taken the task, or it has been ended before",
        Answered::without_task(LOST),
    ))
}
