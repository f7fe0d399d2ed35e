//! The time by the clock of the tasks, and how it is turned in tests.

use std::time::Duration;

use axum::Json;
use axum::extract::{Extension, State};
use axum::http::StatusCode;
use delayline::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Shared;
use super::access::Caller;
use super::body::Body;
use super::problem::{Problem, Refusals};
use crate::schemas;
use crate::serve::test_clock::{Event, What};
use crate::span::Span;
use crate::time::Time;

/// How far a clock is turned by one request.
const FURTHEST: Duration = Duration::from_secs(3_660 * 86_400);

/// The time.
#[derive(Serialize, ToSchema)]
#[schema(as = TimeNow)]
pub(super) struct Now {
    /// By the clock that says when tasks are due.
    now: Time,
    /// Whether it stands still unless it is turned.
    test_clock: bool,
}

/// What time it is.
#[utoipa::path(
    get,
    path = "/v1/time",
    operation_id = "show_time",
    tag = "server",
    responses((status = 200, description = "The time by which tasks are due", body = Now), Refusals)
)]
pub(super) async fn show(State(app): State<Shared>) -> Result<Json<Now>, Problem> {
    Ok(Json(Now {
        now: Time(app.store.now().await?),
        test_clock: app.test_clock.is_some(),
    }))
}

/// How far to turn the clock.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Advance {
    /// From the time that it shows, up to `3660d`. Either this or `to`.
    by: Option<Span>,
    /// Not before the time that it shows. Either this or `by`.
    to: Option<Time>,
}

impl Advance {
    fn until(self, now: Timestamp) -> Result<Timestamp, Problem> {
        match (self.by, self.to) {
            (Some(Span(by)), None) if by > FURTHEST => {
                Err(Problem::invalid("by", Span(by), "allowed is up to 3660d at once"))
            }
            (Some(Span(by)), None) => Ok(now.after(by)),
            (None, Some(Time(to))) if to < now || to > now.after(FURTHEST) => {
                let allowed =
                    format!("allowed is a time from {now}, which the clock shows, up to 3660d after it");
                Err(Problem::invalid("to", to, allowed))
            }
            (None, Some(Time(to))) => Ok(to),
            (None, None) => Err(Problem::invalid(
                "by",
                "missing",
                "allowed is one of by, such as \"15m\", and to, such as \"2026-12-24T08:00:00Z\"",
            )),
            (Some(_), Some(Time(to))) => Err(Problem::invalid(
                "to",
                to,
                "allowed is one of by and to, not both",
            )),
        }
    }
}

/// What happened while the clock was turned.
#[derive(Serialize, ToSchema)]
pub(super) struct Advanced {
    /// What the clock shows now.
    now: Time,
    /// False: so much has happened that the clock stopped on its way. Ask again with the same `to`.
    complete: bool,
    /// How many tasks are due now and wait, for a worker to claim them or for their kind to be resumed.
    waiting: usize,
    /// In the order in which it happened.
    events: Vec<EventView>,
}

/// Something that happened to a task.
#[derive(Serialize, ToSchema)]
#[schema(as = TimedEvent)]
pub(super) struct EventView {
    at: Time,
    #[schema(value_type = WhatName)]
    what: &'static str,
    #[schema(value_type = schemas::TaskId)]
    id: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    key: Option<String>,
    attempt: u32,
    /// Of `claimed`: by whom.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    owner: Option<String>,
    /// Of `webhook`: what it was answered with.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = u16)]
    status: Option<u16>,
    /// Of `published`: where.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    topic: Option<String>,
    /// Why it was `retried` or `snoozed`, or is `dead`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = String)]
    reason: Option<String>,
    /// Of what is scheduled again: for when.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(required = false, value_type = Time)]
    due_at: Option<Time>,
}

/// What may happen: the server `started` to deliver a task, or a worker `claimed` it; a `webhook` was answered, a message
/// `published`; the claim ended as `done`, `retried`, `snoozed`, `again`, `moved`, `released`, `cancelled` or `dead`, or its
/// lease did (`lease_ended`); a task is due, and is `waiting` for a worker to claim it, or for its kind to be resumed.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = What)]
#[allow(dead_code, reason = "only its description is used")]
enum WhatName {
    Started,
    Claimed,
    Webhook,
    Published,
    Done,
    Retried,
    Snoozed,
    Again,
    Moved,
    Released,
    Cancelled,
    Dead,
    LeaseEnded,
    Waiting,
}

impl From<Event> for EventView {
    fn from(event: Event) -> Self {
        let Event {
            at,
            id,
            kind,
            key,
            attempt,
            what,
        } = event;
        let view = |what| Self {
            at: Time(at),
            what,
            id: id.to_string(),
            kind: kind.to_string(),
            key: key.as_ref().map(ToString::to_string),
            attempt,
            owner: None,
            status: None,
            topic: None,
            reason: None,
            due_at: None,
        };
        let again = |what, due_at| Self {
            due_at: Some(Time(due_at)),
            ..view(what)
        };
        match what {
            What::Started => view("started"),
            What::Claimed { owner } => Self {
                owner,
                ..view("claimed")
            },
            What::Webhook { status } => Self {
                status: Some(status),
                ..view("webhook")
            },
            What::Published { topic } => Self {
                topic: Some(topic),
                ..view("published")
            },
            What::Done => view("done"),
            What::Retried { reason, due_at } => Self {
                reason: Some(reason),
                ..again("retried", due_at)
            },
            What::Snoozed { reason, due_at } => Self {
                reason,
                ..again("snoozed", due_at)
            },
            What::Again { due_at } => again("again", due_at),
            What::Moved { due_at } => again("moved", due_at),
            What::Released => view("released"),
            What::Cancelled => view("cancelled"),
            What::Dead { reason } => Self {
                reason: Some(reason),
                ..view("dead")
            },
            What::LeaseEnded => view("lease_ended"),
            What::Waiting => view("waiting"),
        }
    }
}

/// Turns the clock of a server that was started with `--test-clock`, and answers when all has happened that is due by then.
///
/// Everything happens at its time and in that order, each at the moment that the clock shows then: what the server delivers
/// itself is delivered, as often as it is to be tried, and leases, deadlines and snoozes end. It waits for receivers of
/// webhooks and for brokers, however long these take by real time; not for workers: what is to be claimed is left due, and what
/// is claimed is its worker's until its lease ends. Once 10,000 events are to be told, or a few more, it stops on its way. A
/// caller who goes away leaves the clock where it is by then.
#[utoipa::path(
    post,
    path = "/v1/time/advance",
    tag = "server",
    request_body = Advance,
    responses(
        (status = 200, description = "What happened meanwhile", body = Advanced),
        (status = 409, description = "The clock is the machine's, or is being turned; nothing was done", body = Problem, content_type = "application/problem+json"),
        Refusals
    )
)]
pub(super) async fn advance(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Body(advance): Body<Advance>,
) -> Result<Json<Advanced>, Problem> {
    // It is everybody's clock.
    caller.reach_all()?;
    let Some(test_clock) = &app.test_clock else {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "the clock of this server is the machine's, and cannot be turned: a server for tests is started with --test-clock",
        ));
    };
    let to = advance.until(test_clock.now())?;
    let Some(turned) = test_clock.turn(&app.scheduler, to).await? else {
        return Err(Problem::new(
            StatusCode::CONFLICT,
            "the clock is being turned, for another request: it is one at a time, and each test needs a server of its own",
        ));
    };
    Ok(Json(Advanced {
        now: Time(test_clock.now()),
        complete: turned.is_complete,
        waiting: turned.waiting,
        events: turned.events.into_iter().map(EventView::from).collect(),
    }))
}
