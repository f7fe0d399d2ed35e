//! Lets requests in when there is room for what they hold.

use axum::body::{Body, HttpBody, to_bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http_body_util::BodyExt as _;
use serde::de::IgnoredAny;

use super::access::Caller;
use super::problem::Problem;
use super::room::{FULL, Kept, Room};
use super::{App, Shared, upload};

/// What most requests hold: a task, which any of them may be answered with.
pub(super) const A_TASK: usize = 1 << 20;
/// How many tasks of an array that may be there already are scheduled at once: each is read whole then.
pub(super) const AT_ONCE: usize = 32;
/// A shorter answer is left to the connection.
const SHORT: usize = 64 << 10;

/// Which room a request needs, beside that for its body.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) of: fn(&App) -> &Room,
    pub(super) least: fn(&Request) -> usize,
}

/// Lets a request in when its body has come and there is room for what it holds at the least; then what its answer has is
/// held until it is sent.
///
/// A body that is more than a little, or an array, has a room of its own, and so has its request: so what brings little, as
/// the end of a claim does, never waits for what brings much.
pub(super) async fn enter(
    State((app, held)): State<(Shared, Held)>,
    request: Request,
    next: Next,
) -> Response {
    let caller = caller(&request).to_owned();
    let least = (held.least)(&request);
    let (parts, body) = request.into_parts();
    let uploads = app.room_for_uploads.of(&caller);
    let (body, mut kept) = match upload::receive(body, app.body_limit, &uploads).await {
        Ok(received) => received,
        Err(problem) => return problem.into_response(),
    };
    let own = (held.of)(&app).of(&caller);
    let (share, least) = match of_array(&body) {
        Some(least) => (&uploads, least),
        None => (&own, least),
    };
    let has_room = match &mut kept {
        Some(kept) => uploads.grow(kept, least).await,
        None => {
            kept = share.hold(least).await;
            kept.is_some()
        }
    };
    match kept.filter(|_| has_room) {
        Some(kept) => keep(next.run(Request::from_parts(parts, Body::from(body))).await, kept).await,
        None => full(FULL),
    }
}

/// Returns what an array of tasks holds, if it is one: a task for each of its elements, up to those that are looked up at once.
fn of_array(body: &[u8]) -> Option<usize> {
    if !body.trim_ascii_start().starts_with(b"[") {
        return None;
    }
    // What is no JSON is refused.
    let tasks = serde_json::from_slice::<Vec<IgnoredAny>>(body).map_or(1, |all| all.len());
    Some(tasks.clamp(1, AT_ONCE) * A_TASK)
}

/// Of requests that wait for what happens, only so many are let in that others find a connection too.
pub(super) async fn wait(State(app): State<Shared>, request: Request, next: Next) -> Response {
    match app.room_for_waiting.of(caller(&request)).hold_at_once(1) {
        Some(kept) => next
            .run(request)
            .await
            .map(|body| Body::new(body_with(body, kept))),
        None => full(
            "as many requests wait for tasks or events as http.connection_limit allows beside others; nothing was claimed: \
             ask again",
        ),
    }
}

/// Who asks, where a token says so.
fn caller(request: &Request) -> &str {
    let caller = request.extensions().get::<Caller>();
    caller.map_or("", Caller::name)
}

/// The answer to who has to wait for room for too long.
pub(super) fn full(detail: &str) -> Response {
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
}

/// Holds what a long answer has, until it is sent.
async fn keep(response: Response, mut kept: Kept) -> Response {
    let (parts, body) = response.into_parts();
    let body = match body.size_hint().exact().map(usize::try_from) {
        Some(Ok(length)) if length > SHORT => {
            kept.shrink(length);
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

/// Gives a body something that is dropped with it: when it is sent, or its client has gone away.
pub(super) fn body_with<K>(body: Body, kept: K) -> impl HttpBody<Data = Bytes, Error = axum::Error> {
    body.map_err(move |error| {
        // So that the closure owns it, and the body does.
        let _ = &kept;
        error
    })
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

    #[test]
    fn an_array_holds_as_much_as_its_tasks_may_be() {
        for (body, tasks) in [
            ("", None),
            (r#"{"kind": "k"}"#, None),
            ("[]", Some(1)),
            (r#" [{"kind": "k"}, {"kind": "k"}]"#, Some(2)),
            (r#"[{"kind": "k", "payload": [{}, {}, "{,{"]}]"#, Some(1)),
            (&format!("[{}{{}}]", "{},".repeat(10_000)), Some(AT_ONCE)),
            ("[{}, {}", Some(1)),
        ] {
            assert_eq!(
                of_array(body.as_bytes()),
                tasks.map(|tasks| tasks * A_TASK),
                "{body:.40}"
            );
        }
    }

    #[tokio::test]
    async fn an_answer_holds_its_length_until_it_is_gone() {
        let room = Room::new(1 << 20, false).of("");
        let free = || room.free();
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
