//! Streams what becomes of tasks, as it happens.

use std::convert::Infallible;
use std::sync::Arc;

use axum::extract::{Extension, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use delayline::{Events, Kind, Task};
use futures_util::stream;
use serde::Deserialize;
use tokio::sync::watch;
use utoipa::IntoParams;

use super::access::Caller;
use super::body::Search;
use super::problem::{Problem, Refusals};
use super::{Current, Shared};
use crate::operations::{TaskView, state_name};
use crate::schemas;
use crate::time::now;

/// Of which tasks.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Only of this kind.
    #[param(value_type = Option<schemas::Kind>)]
    kind: Option<String>,
}

/// What one client hears.
struct Feed {
    events: Events,
    caller: Caller,
    kind: Option<Kind>,
    stopping: watch::Receiver<bool>,
    /// Whether another configuration holds than the one by which its caller was let in.
    replaced: watch::Receiver<Arc<Current>>,
    /// What comes after it was said that something is missing.
    held: Option<Task>,
}

/// Hears what becomes of tasks through this server, from now on, as server-sent events: each is named by the state of its
/// task, and has the task without its payload. An event `missed` says how many were left out, as they came too fast. The server
/// ends the stream when it takes over another configuration; callers then connect again.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "tasks",
    params(Wanted),
    responses(
        (status = 200, description = "Events, until the client goes away, the server stops or takes over another configuration", body = String, content_type = "text/event-stream"),
        Refusals
    )
)]
pub(super) async fn listen(
    State(app): State<Shared>,
    Extension(caller): Extension<Caller>,
    Search(wanted): Search<Wanted>,
) -> Result<Response, Problem> {
    let kind = wanted.kind.map(Kind::from);
    kind.as_ref().map_or(Ok(()), Kind::check)?;
    kind.as_ref().map_or(Ok(()), |kind| caller.reach(kind))?;
    let replaced = app.replaced_for(&caller);
    let feed = Feed {
        events: app.scheduler.events(),
        caller,
        kind,
        stopping: app.stopping.clone(),
        replaced,
        held: None,
    };
    let events = stream::unfold(feed, |mut feed| async move {
        let event = feed.next().await?;
        Some((Ok::<_, Infallible>(event), feed))
    });
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

impl Feed {
    async fn next(&mut self) -> Option<Event> {
        let task = match self.held.take() {
            Some(task) => task,
            None => self.task().await?,
        };
        match self.events.missed() {
            0 => event_of(task),
            missed => {
                self.held = Some(task);
                Some(Event::default().event("missed").data(missed.to_string()))
            }
        }
    }

    /// The next one of the kind; none, if the server stops, or its caller has to be let in anew.
    async fn task(&mut self) -> Option<Task> {
        loop {
            let task = tokio::select! {
                biased;
                _ = self.stopping.wait_for(|stopping| *stopping) => return None,
                // It asks again, by what holds from now on.
                _ = self.replaced.changed() => return None,
                task = self.events.next() => task?,
            };
            if self.caller.has_ended(now()) {
                return None;
            }
            let is_wanted = self.kind.as_ref().is_none_or(|kind| *kind == task.kind);
            if is_wanted && self.caller.reaches(&task.kind) {
                return Some(task);
            }
        }
    }
}

/// A task as an event. None, which ends the feed, if it cannot be written, as no task can.
fn event_of(task: Task) -> Option<Event> {
    let (id, state) = (task.id, state_name(task.state));
    let event = Event::default().event(state).id(format!("{id}.{}", task.version));
    event.json_data(TaskView::without_payload(task)).ok()
}
