//! The interface, described for machines.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{OpenApi, Server};
use utoipa::{Modify, OpenApi as _};

use super::{Shared, bulk, claims, events, forecast, kinds, schedule, stats, task, verbs};

#[derive(utoipa::OpenApi)]
#[openapi(
    info(title = "Delayline", description = "Tasks that are due later, and can be moved, cancelled and run at once."),
    paths(
        schedule::put,
        schedule::post,
        task::by_key,
        task::by_id,
        task::list,
        verbs::cancel,
        verbs::run,
        verbs::redrive,
        verbs::reschedule,
        verbs::shift,
        bulk::cancel,
        bulk::run,
        bulk::redrive,
        bulk::reschedule,
        bulk::shift,
        kinds::list,
        kinds::pause,
        kinds::resume,
        forecast::show,
        stats::show,
        events::listen,
        claims::take,
        claims::done,
        claims::retry,
        claims::snooze,
        claims::discard,
        claims::extend,
    ),
    security((), ("token" = [])),
    modifiers(&Tokens)
)]
struct Described;

struct Tokens;

impl Modify for Tokens {
    fn modify(&self, described: &mut OpenApi) {
        let scheme = SecurityScheme::Http(Http::new(HttpAuthScheme::Bearer));
        let components = described.components.get_or_insert_default();
        components.add_security_scheme("token", scheme);
    }
}

/// `GET /openapi.json`
pub(super) async fn describe(State(app): State<Shared>) -> Response {
    let mut described = Described::openapi();
    if !app.base_path.is_empty() {
        described.servers = Some(vec![Server::new(&app.base_path)]);
    }
    Json(described).into_response()
}
