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
/// task, and has the task without its payload. An event `missed` says how many were left out, as they came too fast; `null`, where
/// the stream is of one kind or the token for some: then it may be none of these. The server ends the stream when it takes over
/// another configuration; callers then connect again.
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
    /// The next event that is for it; none, if the server stops, or its caller has to be let in anew.
    async fn next(&mut self) -> Option<Event> {
        if let Some(task) = self.held.take() {
            return event_of(task);
        }
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
            let missed = self.events.missed();
            let is_wanted = self.kind.as_ref().is_none_or(|kind| *kind == task.kind);
            let task = Some(task).filter(|task| is_wanted && self.caller.reaches(&task.kind));
            // Also where this one is for others: the next that is not may be long in coming.
            if missed > 0 {
                self.held = task;
                return Some(self.event_of_missed(missed));
            }
            if let Some(task) = task {
                return event_of(task);
            }
        }
    }

    /// That so many events were missed; of which kinds they were is not known, so only what hears all kinds is told the number.
    fn event_of_missed(&self, missed: u64) -> Event {
        let hears_all = self.kind.is_none() && self.caller.reaches_all();
        let missed = hears_all.then(|| missed.to_string());
        let event = Event::default().event("missed");
        event.data(missed.as_deref().unwrap_or("null"))
    }
}

/// A task as an event. None, which ends the feed, if it cannot be written, as no task can.
fn event_of(task: Task) -> Option<Event> {
    let (id, state) = (task.id, state_name(task.state));
    let event = Event::default().event(state).id(format!("{id}.{}", task.version));
    event.json_data(TaskView::without_payload(task)).ok()
}

#[cfg(test)]
mod tests {
    use axum::body::to_bytes;
    use delayline::store::MemoryStore;
    use delayline::{NewTask, Scheduler, defaults};
    use futures_util::FutureExt as _;

    use super::*;
    use crate::serve::config::Token;

    /// The event that is there, as it is sent.
    async fn next(feed: &mut Feed) -> String {
        let event = feed.next().now_or_never().flatten().expect("an event");
        let event = Ok::<_, Infallible>(event);
        let response = Sse::new(stream::iter([event])).into_response();
        let text = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        String::from_utf8(text.to_vec()).unwrap()
    }

    #[tokio::test]
    async fn what_is_missed_is_told_at_once_and_counted_for_those_alone_who_hear_all() {
        let scheduler = Scheduler::new(MemoryStore::new());
        let current = Current {
            claims: scheduler.claims(),
            shares: Default::default(),
            delivered: Default::default(),
            delivered_here: Default::default(),
            of_gateway: Default::default(),
            topics: Default::default(),
        };
        let (_stop, stopping) = watch::channel(false);
        let (_replace, replaced) = watch::channel(Arc::new(current));
        let feed = |caller: Caller, kind: Option<&str>| Feed {
            events: scheduler.events(),
            caller,
            kind: kind.map(Kind::from),
            stopping: stopping.clone(),
            replaced: replaced.clone(),
            held: None,
        };
        let of_some: Token = serde_json::from_value(serde_json::json!({
            "name": "shop", "sha256": "3d0941964aa3ebdcb00ccef58b1bb399f9f898465e9886d5aec7f31090a0fb30",
            "may": ["read"], "kinds": ["order.*"],
        }))
        .unwrap();
        let anybody = || Caller::of("api", None);
        let mut of_all = feed(anybody(), None);
        let mut of_quiet = feed(anybody(), Some("quiet"));
        let mut of_shop = feed(Caller::of("api", Some(&Arc::new(of_some))), None);
        let tasks = (0..defaults::EVENTS + 10).map(|n| NewTask::new("loud", &n));
        scheduler.schedule_all(tasks).await.unwrap();
        assert_eq!(next(&mut of_all).await, "event: missed\ndata: 10\n\n");
        assert!(next(&mut of_all).await.starts_with("event: scheduled\n"));
        for feed in [&mut of_quiet, &mut of_shop] {
            assert_eq!(next(feed).await, "event: missed\ndata: null\n\n");
        }
    }
}
