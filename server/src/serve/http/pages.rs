//! The operator's pages: what the HTTP interface answers, by the same calls, for people.

mod assets;
mod brokers;
mod bulk;
mod dead;
mod edit;
mod entrance;
mod fields;
mod find;
mod form;
mod frame;
mod jobs;
mod kinds;
mod late;
mod levels;
mod overview;
mod payload;
mod seal;
mod sign_in;
mod signs;
mod spark;
mod task;
mod tasks;
mod timeline;
mod to;
mod undo;
mod visitor;
mod wanted;
mod words;
mod workers;
mod wrong;

use std::sync::{Arc, PoisonError, RwLock};

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{MethodRouter, get, post};
use tower_http::timeout::TimeoutLayer;

use self::seal::Seal;
use super::access::Access;
use super::admission::{self, Held};
use super::{LIMIT, Shared, events};
use crate::serve::config::Right;

/// What the pages know beside what the rest of the interface does.
#[derive(Debug)]
pub(crate) struct Pages {
    seal: RwLock<Arc<Seal>>,
}

impl Pages {
    pub(crate) fn new(access: &Access) -> Result<Self, getrandom::Error> {
        let seal = RwLock::new(Arc::new(Seal::new(access)?));
        Ok(Self { seal })
    }

    /// Goes by the tokens of the other from now on, which ends all sessions.
    pub(crate) fn replace(&self, by: &Self) {
        *self.seal.write().unwrap_or_else(PoisonError::into_inner) = by.seal();
    }

    fn seal(&self) -> Arc<Seal> {
        Arc::clone(&self.seal.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// All pages.
pub(super) fn router(app: &Shared) -> Router<Shared> {
    let enter = |right: Option<Right>, handlers: MethodRouter<Shared>| {
        handlers.route_layer(from_fn_with_state((Arc::clone(app), right), entrance::enter))
    };
    let may = |right: Right, handlers: MethodRouter<Shared>| enter(Some(right), handlers);
    let holds = |least: fn(&Request) -> usize, handlers: MethodRouter<Shared>| {
        let held = Held {
            of: |app| &app.room_for_many,
            least,
        };
        handlers.route_layer(from_fn_with_state((Arc::clone(app), held), admission::enter))
    };
    let wait = |handlers: MethodRouter<Shared>| {
        handlers.route_layer(from_fn_with_state(Arc::clone(app), admission::wait))
    };
    let (read, change) = (Right::Read, Right::Change);
    // What makes a task needs `Right::Schedule` as well, for which its handler asks: `rerun` and `undo` of
    // `/tasks/{id}/{verb}`, and `/bulk/undo`. Pages offer them only to visitors that have it.
    // What shows a payload needs `Right::Read` as well: `edit` of `/tasks/{id}/{verb}`.
    let pages = Router::new()
        .route("/", may(read, holds(overview::held, get(overview::show))))
        .route("/tasks", may(read, holds(tasks::held, get(tasks::show))))
        .route("/tasks/{id}", may(read, holds(task::held, get(task::show))))
        .route(
            "/tasks/{id}/{verb}",
            may(change, holds(task::held, post(task::act))),
        )
        .route("/kinds", may(read, get(kinds::show)))
        .route("/kinds/pause", may(change, post(kinds::pause)))
        .route("/kinds/resume", may(change, post(kinds::resume)))
        .route("/workers", may(read, holds(workers::held, get(workers::show))))
        .route("/brokers", may(read, get(brokers::show)))
        .route("/dead", may(read, holds(dead::held, get(dead::show))))
        .route(
            "/bulk",
            may(read, get(jobs::list)).merge(may(change, holds(bulk::held, post(bulk::change)))),
        )
        .route("/bulk/check", may(change, holds(bulk::held, get(bulk::check))))
        .route(
            "/bulk/undo",
            may(change, holds(task::held, post(undo::undo_many))),
        )
        .route("/bulk/done", may(read, get(bulk::done)))
        .route("/bulk/{id}", may(read, get(jobs::show)))
        .route("/bulk/{id}/stop", may(change, post(jobs::stop)))
        .route("/sign-in", get(sign_in::show).post(sign_in::enter))
        .route("/sign-out", enter(None, post(sign_in::leave)))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            LIMIT,
        ));
    Router::new()
        .merge(pages)
        // The same events as of `/v1/events`, for which a browser has no token to send.
        .route("/live", may(read, wait(get(events::listen))))
        .route("/assets/page.css", get(assets::style))
        .route("/assets/live.js", get(assets::script))
        .route("/assets/icon.svg", get(assets::icon))
        .layer(from_fn_with_state(Arc::clone(app), frame::answer))
        .layer(from_fn(frame::guard))
}
