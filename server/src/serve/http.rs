//! The HTTP interface.

mod access;
mod admission;
mod answer;
mod body;
mod bulk;
mod claim_kinds;
mod claims;
mod conditions;
mod connection;
mod connections;
mod current;
mod events;
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
mod time;
mod upload;
mod verbs;
mod waiting;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Redirect};
use axum::routing::{MethodRouter, get};
use delayline::store::Store;
use delayline::{Scheduler, Timestamp};
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::watch;
use tower_http::timeout::TimeoutLayer;
use utoipa_axum::router::{OpenApiRouter, UtoipaMethodRouterExt as _};
use utoipa_axum::routes;

pub(super) use self::access::Access;
use self::access::{Peer, require};
use self::admission::{A_TASK, Held};
pub(super) use self::claim_kinds::ClaimKinds;
pub(super) use self::current::Current;
pub(super) use self::pages::Pages;
use self::problem::Problem;
pub(super) use self::room::Room;
pub(super) use self::serving::serve;
pub(super) use self::waiting::answer_while;
use super::config::{Right, TraceUrl};
use super::recent::Recent;
use super::test_clock::TestClock;
use super::traces::Traces;
use super::unscheduled::Unscheduled;
use crate::operations::{HELD, Health, Jobs};

/// For how long a request may take that does not wait for tasks.
const LIMIT: Duration = Duration::from_secs(30);
/// How many bytes the body of a request may have that is let in without room for it, as many may wait at once; or of which
/// each byte could become many.
const LITTLE: usize = 64 << 10;

/// What the requests are answered with.
#[derive(Debug)]
pub(crate) struct App {
    pub(crate) scheduler: Scheduler,
    /// What another configuration replaces.
    pub(crate) current: watch::Sender<Arc<Current>>,
    pub(crate) traces: Traces,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) access: Access,
    pub(crate) pages: Pages,
    /// As which it holds tasks.
    pub(crate) name: String,
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
    /// The kinds of the claims that it has given.
    pub(crate) claim_kinds: ClaimKinds,
    /// What answers, and since when what does not.
    pub(crate) health: Health,
    /// The clock of its tasks, if it can be turned.
    pub(crate) test_clock: Option<Arc<TestClock>>,
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
    let (interface, described) = interface(&app).split_for_parts();
    let described = openapi::json(described, &base_path);
    let a_scrape = Held {
        of: |app| &app.room_for_scrapes,
        least: |_| room::A_SCRAPE,
    };
    // Also for callers that may see more.
    let scrape = guard(&app, &[Right::Scrape, Right::Read], Some(a_scrape));
    let all = Router::new()
        .merge(interface)
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/openapi.json", get(|| async { described }))
        .route("/metrics", scrape(get(metrics::show)))
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

/// Lets only callers through that have one of the rights, when there is room for what they hold.
fn guard(
    app: &Shared,
    rights: &'static [Right],
    held: Option<Held>,
) -> impl Fn(MethodRouter<Shared>) -> MethodRouter<Shared> + use<> {
    let app = Arc::clone(app);
    move |handlers| {
        let handlers = match held {
            Some(held) => {
                handlers.route_layer(from_fn_with_state((Arc::clone(&app), held), admission::enter))
            }
            // It may wait, and holds no bytes meanwhile.
            None => handlers.route_layer(from_fn_with_state(Arc::clone(&app), admission::wait)),
        };
        handlers.route_layer(from_fn_with_state((Arc::clone(&app), rights), require))
    }
}

/// The interface for programs, each operation with its description.
fn interface(app: &Shared) -> OpenApiRouter<Shared> {
    let a_task = Held {
        of: |app| &app.room,
        least: |_| A_TASK,
    };
    let many = |least| Held {
        of: |app| &app.room_for_many,
        least,
    };
    let read = guard(app, &[Right::Read], Some(a_task));
    let schedule = guard(app, &[Right::Schedule], Some(a_task));
    let change = guard(app, &[Right::Change], Some(a_task));
    let work = guard(app, &[Right::Work], Some(a_task));
    let list = guard(app, &[Right::Read], Some(many(task::held)));
    let change_many = guard(app, &[Right::Change], Some(many(|_| HELD)));
    // Also for callers that may begin one.
    let see_bulk = guard(app, &[Right::Read, Right::Change], Some(a_task));
    let limited = OpenApiRouter::with_openapi(openapi::described())
        .routes(routes!(task::list).map(list))
        .routes(routes!(task::by_key).map(&read))
        .routes(routes!(task::by_id).map(&read))
        .routes(routes!(schedule::post).map(&schedule))
        .routes(routes!(schedule::put).map(&schedule))
        .routes(routes!(verbs::rerun).map(&schedule))
        .routes(routes!(verbs::rerun_by_id).map(schedule))
        .routes(routes!(verbs::cancel).map(&change))
        .routes(routes!(verbs::cancel_by_id).map(&change))
        .routes(routes!(verbs::run).map(&change))
        .routes(routes!(verbs::run_by_id).map(&change))
        .routes(routes!(verbs::redrive).map(&change))
        .routes(routes!(verbs::redrive_by_id).map(&change))
        .routes(routes!(verbs::dismiss).map(&change))
        .routes(routes!(verbs::dismiss_by_id).map(&change))
        .routes(routes!(verbs::reschedule).map(&change))
        .routes(routes!(verbs::reschedule_by_id).map(&change))
        .routes(routes!(verbs::shift).map(&change))
        .routes(routes!(verbs::shift_by_id).map(&change))
        .routes(routes!(verbs::edit).map(&change))
        .routes(routes!(verbs::edit_by_id).map(&change))
        .routes(routes!(bulk::cancel).map(&change_many))
        .routes(routes!(bulk::run).map(&change_many))
        .routes(routes!(bulk::redrive).map(&change_many))
        .routes(routes!(bulk::dismiss).map(&change_many))
        .routes(routes!(bulk::reschedule).map(&change_many))
        .routes(routes!(bulk::shift).map(change_many))
        .routes(routes!(bulk::list).map(&see_bulk))
        .routes(routes!(bulk::show).map(see_bulk))
        .routes(routes!(bulk::stop).map(&change))
        .routes(routes!(kinds::list).map(&read))
        .routes(routes!(kinds::pause).map(&change))
        .routes(routes!(kinds::resume).map(change))
        .routes(routes!(forecast::show).map(&read))
        .routes(routes!(stats::show).map(&read))
        .routes(routes!(time::show).map(read))
        .routes(
            routes!(claims::all_done)
                .map(&work)
                .layer(DefaultBodyLimit::max(LITTLE)),
        )
        .routes(routes!(claims::done).map(&work))
        .routes(routes!(claims::retry).map(&work))
        .routes(routes!(claims::snooze).map(&work))
        .routes(routes!(claims::discard).map(&work))
        .routes(routes!(claims::extend).map(work))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            LIMIT,
        ));
    // These may wait longer.
    let take = guard(app, &[Right::Work], None);
    let listen = guard(app, &[Right::Read], None);
    let turn = guard(app, &[Right::Change], None);
    let waiting = OpenApiRouter::new()
        .routes(routes!(claims::take).map(take))
        .routes(routes!(events::listen).map(listen))
        .routes(routes!(time::advance).map(turn))
        .layer(DefaultBodyLimit::max(LITTLE));
    limited.merge(waiting)
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
