//! How many bytes of requests and answers the server holds at once.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::Problem;
use super::{App, Shared};

/// What most requests hold: a task, which any of them may be answered with.
pub(super) const A_TASK: usize = 1 << 20;
/// For how long a request waits for room, before its body is read.
const PATIENCE: Duration = Duration::from_secs(5);
/// A shorter answer is left to the connection.
const SHORT: usize = 64 << 10;

/// What a scrape of metrics holds: more than all series of as many kinds as are told apart.
pub(super) const A_SCRAPE: usize = 4 << 20;
/// How many scrapes are answered at once.
const SCRAPES: usize = 4;

/// The bytes that are free for requests, in the order in which they come.
#[derive(Debug)]
pub(crate) struct Room {
    free: Arc<Semaphore>,
    all: usize,
    body_limit: usize,
}

impl Room {
    /// Of `all` bytes; a body has no more than `body_limit`.
    pub(crate) fn new(all: usize, body_limit: usize) -> Self {
        let all = all.min(Semaphore::MAX_PERMITS);
        Self {
            free: Arc::new(Semaphore::new(all)),
            all,
            body_limit,
        }
    }

    /// Of those who look after the server: however many others ask, they are answered.
    pub(crate) fn for_scrapes() -> Self {
        Self::new(SCRAPES * A_SCRAPE, 0)
    }

    /// Waits until there is room for so many bytes; none if there is none for too long.
    async fn hold(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        tokio::time::timeout(PATIENCE, self.wait(bytes)).await.ok()?
    }

    /// Waits until there is room for so many bytes, for whoever has no client that waits.
    pub(super) async fn wait(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes.min(self.all)).unwrap_or(u32::MAX);
        let held = Arc::clone(&self.free).acquire_many_owned(bytes);
        // It is never closed.
        held.await.ok()
    }

    /// How many bytes a body may have.
    fn length(&self, body: &Body) -> usize {
        let upper = body.size_hint().upper().map(usize::try_from);
        match upper {
            // What is longer is read up to the limit, and refused.
            Some(Ok(length)) => length.min(self.body_limit),
            Some(Err(_)) | None => self.body_limit,
        }
    }
}

/// Which room a request needs, beside that for its body.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) of: fn(&App) -> &Room,
    pub(super) least: fn(&Request) -> usize,
}

/// Lets a request in when there is room for its body, or for what it holds at the least; then what its answer has is held
/// until it is sent.
pub(super) async fn enter(
    State((app, held)): State<(Shared, Held)>,
    request: Request,
    next: Next,
) -> Response {
    let room = (held.of)(&app);
    let bytes = room.length(request.body()).max((held.least)(&request));
    match room.hold(bytes).await {
        Some(held) => keep(next.run(request).await, held).await,
        None => {
            full("as many requests are under way as http.memory_limit allows; nothing was done: ask again")
        }
    }
}

/// The answer to who has to wait for room for too long.
pub(super) fn full(detail: &str) -> Response {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
}

/// Holds what a long answer has, until it is sent.
async fn keep(response: Response, mut held: OwnedSemaphorePermit) -> Response {
    let (parts, body) = response.into_parts();
    let body = match body.size_hint().exact().map(usize::try_from) {
        Some(Ok(length)) if length > SHORT => {
            let kept = held.split(length.min(held.num_permits()));
            drop(held);
            match to_bytes(body, length).await {
                Ok(bytes) => sent_with(bytes, kept),
                // There is nothing that could fail: it is in memory.
                Err(_) => Body::empty(),
            }
        }
        // Short, or a stream that makes what it sends.
        _ => body,
    };
    Response::from_parts(parts, body)
}

/// A body that has something with it until it is sent, or its client has gone away.
pub(super) fn sent_with(bytes: impl AsRef<[u8]> + Send + 'static, kept: impl Send + 'static) -> Body {
    struct With<B, K>(B, #[allow(dead_code, reason = "it is dropped with the bytes")] K);
    impl<B: AsRef<[u8]>, K> AsRef<[u8]> for With<B, K> {
        fn as_ref(&self) -> &[u8] {
            self.0.as_ref()
        }
    }
    Body::from(Bytes::from_owner(With(bytes, kept)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_waits_and_is_refused_in_the_end() {
        let room = Room::new(3 << 20, 2 << 20);
        let first = room.hold(2 << 20).await.unwrap();
        let begin = tokio::time::Instant::now();
        assert!(room.hold(2 << 20).await.is_none());
        assert_eq!(begin.elapsed(), PATIENCE);
        let (second, ()) = tokio::join!(room.hold(2 << 20), async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
        });
        assert!(second.is_some());
        assert_eq!(begin.elapsed(), PATIENCE + Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_more_than_all_takes_all() {
        let room = Room::new(1 << 20, 1 << 20);
        let all = room.hold(usize::MAX).await.unwrap();
        assert_eq!(all.num_permits(), 1 << 20);
        assert!(room.hold(1).await.is_none());
    }

    #[tokio::test]
    async fn a_body_is_held_by_its_length_or_the_limit() {
        let room = Room::new(0, 1_000);
        assert_eq!(room.length(&Body::empty()), 0);
        assert_eq!(room.length(&Body::from(vec![0; 10])), 10);
        assert_eq!(room.length(&Body::from(vec![0; 2_000])), 1_000);
        let parts = [Ok::<_, std::io::Error>("x")];
        let body = Body::from_stream(futures_util::stream::iter(parts));
        assert_eq!(room.length(&body), 1_000);
    }

    #[tokio::test]
    async fn an_answer_holds_its_length_until_it_is_gone() {
        let room = Room::new(1 << 20, 1 << 20);
        let free = || room.free.available_permits();
        let held = room.hold(1 << 20).await.unwrap();
        let response = keep(vec![7; SHORT + 1].into_response(), held).await;
        assert_eq!(free(), (1 << 20) - SHORT - 1);
        let bytes = to_bytes(response.into_body(), usize::MAX).await.unwrap();
        assert_eq!((bytes.len(), bytes[SHORT]), (SHORT + 1, 7));
        assert_eq!(free(), (1 << 20) - SHORT - 1);
        drop(bytes);
        assert_eq!(free(), 1 << 20);
        let held = room.hold(1 << 20).await.unwrap();
        let _short = keep("short".into_response(), held).await;
        assert_eq!(free(), 1 << 20);
    }
}
