//! Whether the server is alive, and whether it can do its work.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use delayline::Timestamp;
use serde::Serialize;

use super::{Shared, now};

/// For how long a part may take to answer.
const LIMIT: Duration = Duration::from_secs(5);

#[derive(Serialize)]
struct Ready {
    ready: bool,
    parts: Vec<Part>,
}

/// A server that this one cannot do without.
#[derive(Serialize)]
pub(super) struct Part {
    pub(super) name: &'static str,
    pub(super) ready: bool,
    /// When it was first seen not to answer, if it does not.
    #[serde(skip)]
    pub(super) silent_since: Option<Timestamp>,
}

/// Since when parts have not answered, as far as somebody has asked.
#[derive(Debug, Default)]
pub(crate) struct Silent(Mutex<BTreeMap<usize, Timestamp>>);

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
    let ready = parts.iter().all(|part| part.ready);
    let status = match ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, Json(Ready { ready, parts })).into_response()
}

/// Whether each of them answers.
pub(super) async fn parts(app: &Shared) -> Vec<Part> {
    let name = app.store.name();
    let mut asked = vec![(name, is_ready(name, app.store.check()).await)];
    for backend in &app.backends {
        let name = backend.name();
        asked.push((name, is_ready(name, backend.health()).await));
    }
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
    use super::*;

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
