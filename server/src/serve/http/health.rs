//! Whether the server is alive, and whether it can do its work.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use delayline::Timestamp;
use futures_util::future::join_all;
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::{Shared, now};

/// For how long a part may take to answer.
const LIMIT: Duration = Duration::from_secs(5);
/// For how long what was said holds.
const FRESH: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct Ready {
    /// Whether the store answers.
    ready: bool,
    /// Whether another part does not, without which the interface goes on.
    degraded: bool,
    parts: Vec<Part>,
}

/// A server that this one works with.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) ready: bool,
    /// When it was first seen not to answer, if it does not.
    #[serde(skip)]
    pub(super) silent_since: Option<Timestamp>,
}

/// Since when parts have not answered, as far as somebody has asked.
#[derive(Debug, Default)]
pub(crate) struct Silent(std::sync::Mutex<BTreeMap<usize, Timestamp>>);

impl Silent {
    /// Since when the part at this place has been silent, which was asked just now.
    fn since(&self, place: usize, is_ready: bool, now: Timestamp) -> Option<Timestamp> {
        let mut since = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_ready {
            since.remove(&place);
            return None;
        }
        Some(*since.entry(place).or_insert(now))
    }
}

/// `GET /healthz`
pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// `GET /readyz`
pub(super) async fn ready(State(app): State<Shared>) -> Response {
    let parts = parts(&app).await;
    // The store is the first.
    let ready = parts.first().is_some_and(|store| store.ready);
    let degraded = parts.iter().skip(1).any(|part| !part.ready);
    let status = match ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let ready = Ready {
        ready,
        degraded,
        parts,
    };
    (status, Json(ready)).into_response()
}

/// What was said last, and when.
#[derive(Debug, Default)]
pub(crate) struct Known(Arc<Mutex<Option<Said>>>);

type Said = (Instant, Vec<Part>);

impl Known {
    /// What is known, or what `ask` says: of all who want to know at once it is asked for one, and then not for a second.
    async fn or_ask(&self, ask: impl Future<Output = Vec<Part>> + Send + 'static) -> Vec<Part> {
        let mut known = Arc::clone(&self.0).lock_owned().await;
        if let Some((at, parts)) = &*known
            && at.elapsed() < FRESH
        {
            return parts.clone();
        }
        // Goes on where its caller goes away, so that no more is asked when many do.
        let asking = tokio::spawn(async move {
            let parts = ask.await;
            *known = Some((Instant::now(), parts.clone()));
            parts
        });
        // It does not panic.
        asking.await.unwrap_or_default()
    }
}

/// Whether each of them answers, the store first.
pub(super) async fn parts(app: &Shared) -> Vec<Part> {
    app.known.or_ask(asked(Arc::clone(app))).await
}

async fn asked(app: Shared) -> Vec<Part> {
    let name = app.store.name();
    let store = is_ready(name, app.store.check());
    let others = app
        .backends
        .iter()
        .map(|backend| is_ready(backend.name(), backend.health()));
    let (store, others) = futures_util::future::join(store, join_all(others)).await;
    let names = app.backends.iter().map(|backend| backend.name());
    let mut asked = vec![(name, store)];
    asked.extend(names.zip(others));
    // Only where some are not known to be there: all others are looked at when they are published to.
    if !app.topics.are_seen() {
        asked.push(("topics", false));
    }
    let now = now();
    let part = |(place, (name, ready))| Part {
        name,
        ready,
        silent_since: app.silent.since(place, ready, now),
    };
    asked.into_iter().enumerate().map(part).collect()
}

/// Why it is not ready is for the log: who asks here needs no token.
async fn is_ready(name: &'static str, asked: impl Future<Output = Result<(), delayline::Error>>) -> bool {
    match tokio::time::timeout(LIMIT, asked).await {
        Ok(Ok(())) => true,
        Ok(Err(error)) => {
            tracing::warn!(part = name, %error, "the server is not ready");
            false
        }
        Err(_) => {
            tracing::warn!(
                part = name,
                "the server is not ready, as this part does not answer"
            );
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn however_many_want_to_know_it_is_asked_once_a_second() {
        let (known, calls) = (Known::default(), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let calls = Arc::clone(&calls);
            known.or_ask(async move {
                calls.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
                vec![Part {
                    name: "store",
                    ready: true,
                    silent_since: None,
                }]
            })
        };
        // One goes away, and what it has begun is answered to the others.
        let gone = tokio::time::timeout(Duration::from_millis(10), ask()).await;
        let answers = join_all((0..100).map(|_| ask())).await;
        assert!(gone.is_err() && answers.iter().all(|parts| parts.len() == 1));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        tokio::time::sleep(FRESH).await;
        ask().await;
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_part_is_silent_since_it_was_first_seen_so_until_it_answers() {
        let silent = Silent::default();
        let seen = |place, is_ready, now| {
            let since = silent.since(place, is_ready, Timestamp::from_millis(now));
            since.map(Timestamp::as_millis)
        };
        assert_eq!(seen(0, true, 1), None);
        assert_eq!(seen(0, false, 2), Some(2));
        assert_eq!(seen(1, true, 3), None);
        assert_eq!(seen(0, false, 4), Some(2));
        assert_eq!(seen(0, true, 5), None);
        assert_eq!(seen(0, false, 6), Some(6));
    }
}
