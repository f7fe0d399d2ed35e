//! The HTTP interface.

mod access;
mod answer;
mod body;
mod body_with;
mod bulk;
mod claim_kinds;
mod claims;
mod connection;
mod connections;
mod events;
mod explained;
mod forecast;
mod health;
mod idempotency;
mod kinds;
mod metrics;
mod openapi;
mod pages;
mod patience;
mod problem;
mod room;
mod schedule;
mod serving;
mod stats;
mod task;
mod texts;
mod time;
mod upload;
mod verbs;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect};
use axum::routing::{MethodRouter, delete, get, post, put};
use delayline::backend::Backend;
use delayline::claims::Claims;
use delayline::store::Store;
use delayline::{Kind, Scheduler, Timestamp};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tower_http::timeout::TimeoutLayer;

pub(super) use self::access::Access;
use self::access::require;
pub(crate) use self::answer::TaskView;
pub(super) use self::bulk::Jobs;
pub(super) use self::claim_kinds::ClaimKinds;
pub(crate) use self::explained::ExplainedView;
pub(super) use self::health::{Known, Silent};
pub(super) use self::pages::Pages;
use self::pages::Peer;
use self::problem::Problem;
pub(super) use self::room::Room;
pub(super) use self::serving::serve;
pub(super) use self::waiting::answer_while;
use super::config::{Right, TraceUrl};
use super::recent::Recent;
use super::test_clock::{self, TestClock};
use super::topics::Topics;
use super::traces::Traces;
use super::unscheduled::Unscheduled;

/// For how long a request may take that does not wait for tasks.
const LIMIT: Duration = Duration::from_secs(30);

/// What the requests are answered with.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) scheduler: Scheduler,
    /// Of kinds that wait until somebody claims them.
    pub(crate) claims: Claims,
    pub(crate) traces: Traces,
    pub(crate) store: Arc<dyn Store>,
    /// What carries wake-ups, beside what the library has by itself.
    pub(crate) backends: Vec<Arc<dyn Backend>>,
    pub(crate) access: Access,
    pub(crate) pages: Pages,
    pub(crate) started_at: Timestamp,
    pub(crate) body_limit: usize,
    /// For requests about a task, and those that bring little.
    pub(crate) room: Room,
    /// For those that bring more.
    pub(crate) room_for_uploads: Room,
    /// For those that look at many.
    pub(crate) room_for_many: Room,
    /// For those that look at figures.
    pub(crate) room_for_scrapes: Room,
    /// For requests that wait for tasks or events, each of which holds one.
    pub(crate) room_for_waiting: Room,
    pub(crate) figures: PrometheusHandle,
    pub(crate) recent: Recent,
    /// The messages to the gateway that will not come out.
    pub(crate) unscheduled: Unscheduled,
    /// Where the tasks of each kind go that the configuration names, for people.
    pub(crate) delivered: BTreeMap<Kind, String>,
    /// The kinds whose tasks this server or the gateway delivers, so that no worker may claim them.
    pub(crate) delivered_here: BTreeSet<Kind>,
    /// The kinds of the claims that it has given.
    pub(crate) claim_kinds: ClaimKinds,
    /// The kinds of messages, whose tasks only the gateway schedules.
    pub(crate) of_gateway: BTreeSet<Kind>,
    /// What answers, and since when what does not.
    pub(crate) known: Known,
    /// The topics that tasks are delivered to.
    pub(crate) topics: Arc<Topics>,
    /// The clock of its tasks, if it can be turned.
    pub(crate) test_clock: Option<Arc<TestClock>>,
    /// What does not answer.
    pub(crate) silent: Silent,
    /// The changes in bulk that go on behind their callers.
    pub(crate) jobs: Jobs,
    /// Empty, or without a slash at its end.
    pub(crate) base_path: String,
    /// Where people look at traces.
    pub(crate) trace_url: Option<TraceUrl>,
    /// Whether the server is about to end.
    pub(crate) stopping: watch::Receiver<bool>,
}

pub(crate) type Shared = Arc<App>;

/// All that is answered.
pub(crate) fn router(app: Shared) -> Router {
    let base_path = app.base_path.clone();
    let must_have = |rights: &'static [Right], handlers: MethodRouter<Shared>| {
        handlers.route_layer(from_fn_with_state((Arc::clone(&app), rights), require))
    };
    let may_hold = |right: &'static [Right], held: room::Held, handlers: MethodRouter<Shared>| {
        let enter = from_fn_with_state((Arc::clone(&app), held), room::enter);
        must_have(right, handlers.route_layer(enter))
    };
    let a_task = room::Held {
        of: |app| &app.room,
        least: |_| room::A_TASK,
    };
    let many = |least| room::Held {
        of: |app| &app.room_for_many,
        least,
    };
    let may = |right, handlers| may_hold(right, a_task, handlers);
    let (read, schedule): (&[_], &[_]) = (&[Right::Read], &[Right::Schedule]);
    let (change, work): (&[_], &[_]) = (&[Right::Change], &[Right::Work]);
    let a_scrape = room::Held {
        of: |app| &app.room_for_scrapes,
        least: |_| room::A_SCRAPE,
    };
    // Also whoever may see more.
    let scrape: &[_] = &[Right::Scrape, Right::Read];
    let change_many = |handlers| may_hold(change, many(|_| bulk::HELD), handlers);
    // Also whoever may begin one.
    let look_at_bulk: &[_] = &[Right::Read, Right::Change];
    let tasks = Router::new()
        .route(
            "/tasks",
            may_hold(read, many(task::held), get(task::list)).merge(may(schedule, post(schedule::post))),
        )
        .route("/tasks:cancel", change_many(post(bulk::cancel)))
        .route("/tasks:run", change_many(post(bulk::run)))
        .route("/tasks:redrive", change_many(post(bulk::redrive)))
        .route("/tasks:dismiss", change_many(post(bulk::dismiss)))
        .route("/tasks:reschedule", change_many(post(bulk::reschedule)))
        .route("/tasks:shift", change_many(post(bulk::shift)))
        .route("/bulk", may(look_at_bulk, get(bulk::list)))
        .route(
            "/bulk/{id}",
            may(look_at_bulk, get(bulk::show)).merge(may(change, delete(bulk::stop))),
        )
        .route("/kinds", may(read, get(kinds::list)))
        .route("/kinds/{kind}/pause", may(change, post(kinds::pause)))
        .route("/kinds/{kind}/resume", may(change, post(kinds::resume)))
        .route("/forecast", may(read, get(forecast::show)))
        .route("/stats", may(read, get(stats::show)))
        .route("/time", may(read, get(time::show)))
        .route("/tasks/id/{id}", may(read, get(task::by_id)))
        .route(
            "/tasks/{kind}/{key}",
            may(read, get(task::by_key)).merge(may(schedule, put(schedule::put))),
        )
        .route("/tasks/{kind}/{key}/cancel", may(change, post(verbs::cancel)))
        .route("/tasks/{kind}/{key}/run", may(change, post(verbs::run)))
        .route("/tasks/{kind}/{key}/redrive", may(change, post(verbs::redrive)))
        .route("/tasks/{kind}/{key}/dismiss", may(change, post(verbs::dismiss)))
        .route(
            "/tasks/{kind}/{key}/reschedule",
            may(change, post(verbs::reschedule)),
        )
        .route("/tasks/{kind}/{key}/shift", may(change, post(verbs::shift)));
    // These may wait longer, and hold no bytes meanwhile.
    let may_wait = |right, handlers: MethodRouter<Shared>| {
        let wait = from_fn_with_state(Arc::clone(&app), room::wait);
        must_have(right, handlers.route_layer(wait))
    };
    let take = may_wait(work, post(claims::take)).layer(DefaultBodyLimit::max(claims::BODY_LIMIT));
    let take = Router::new()
        .route("/claims", take)
        .route("/events", may_wait(read, get(events::listen)))
        .route("/time/advance", may_wait(change, post(time::advance)));
    let claims = Router::new()
        .route("/claims:done", may(work, post(claims::all_done)))
        .route("/claims/{claim}/done", may(work, post(claims::done)))
        .route("/claims/{claim}/retry", may(work, post(claims::retry)))
        .route("/claims/{claim}/snooze", may(work, post(claims::snooze)))
        .route("/claims/{claim}/discard", may(work, post(claims::discard)))
        .route("/claims/{claim}/extend", may(work, post(claims::extend)));
    let limited = tasks.merge(claims).layer(TimeoutLayer::with_status_code(
        StatusCode::SERVICE_UNAVAILABLE,
        LIMIT,
    ));
    let all = Router::new()
        .nest("/v1", limited.merge(take))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/openapi.json", get(openapi::describe))
        .route("/metrics", may_hold(scrape, a_scrape, get(metrics::show)))
        .merge(pages::router(&app))
        .fallback(unknown)
        .method_not_allowed_fallback(not_allowed)
        .layer(DefaultBodyLimit::max(app.body_limit))
        .with_state(app);
    let all = match base_path.as_str() {
        "" => all,
        path => Router::new()
            .nest(path, all)
            .route(&format!("{path}/"), get(Redirect::permanent(path)))
            .fallback(unknown),
    };
    all.layer(from_fn(upload::pace))
        .layer(from_fn(problem::name_request))
}

/// By this machine's clock, or the one that tests turn: it is for people.
pub(super) fn now() -> Timestamp {
    test_clock::shown().unwrap_or_else(|| SystemTime::now().into())
}

async fn unknown() -> impl IntoResponse {
    Problem::new(StatusCode::NOT_FOUND, "there is nothing at this path")
}

async fn not_allowed(State(_): State<Shared>) -> impl IntoResponse {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "this path does not know this method; the header Allow has those it knows",
    )
}
