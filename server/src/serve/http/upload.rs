//! Bodies as they come: at a pace, and held from when they are more than a little.

use std::error::Error;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::problem::Problem;
use super::room::{FULL, Kept, Share};

/// So much of a body belongs to its connection, and needs no room.
const OWN: usize = 32 << 10;
/// Within this time so much of a body has to come, or its end.
const WINDOW: Duration = Duration::from_secs(5);
const LEAST: usize = 16 << 10;

/// A body has come too slowly.
#[derive(Debug, thiserror::Error)]
#[error("less than {LEAST} bytes of the body came within {WINDOW:?}; nothing was done")]
struct TooSlow;

/// Has the body of a request come at a pace.
pub(super) async fn pace(request: Request, next: Next) -> Response {
    let request = match request.body().is_end_stream() {
        true => request,
        false => request.map(|body| {
            Body::new(Paced {
                body,
                came: 0,
                over: None,
            })
        }),
    };
    next.run(request).await
}

/// A body that ends with an error when it comes too slowly.
struct Paced {
    body: Body,
    /// How much has come within the window.
    came: usize,
    /// When that is over.
    over: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Paced {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(context) {
            if let Some(Ok(frame)) = &frame {
                self.came += frame.data_ref().map_or(0, Bytes::len);
            }
            if self.came >= LEAST {
                (self.came, self.over) = (0, None);
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let over = self.over.get_or_insert_with(|| Box::pin(sleep(WINDOW)));
        ready!(over.as_mut().poll(context));
        Poll::Ready(Some(Err(TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The whole of a body, and the room that it has taken, as it came, if it is more than a little.
pub(super) async fn receive(
    mut body: Body,
    limit: usize,
    room: &Share,
) -> Result<(Bytes, Option<Kept>), Problem> {
    let hint = body.size_hint();
    let longest = hint.upper().and_then(|upper| usize::try_from(upper).ok());
    let longest = longest.map_or(limit, |longest| longest.min(limit));
    // A part of it is read nevertheless, so that its client hears why.
    let is_too_long = usize::try_from(hint.lower()).is_ok_and(|lower| lower > limit);
    let (mut all, mut kept, mut came) = (Vec::new(), None, 0);
    while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| unread(&error, StatusCode::BAD_REQUEST))?;
        let Ok(part) = frame.into_data() else { continue };
        came += part.len();
        if came > limit {
            return Err(too_large());
        }
        if is_too_long {
            continue;
        }
        if came > all.capacity() {
            let capacity = came.max(2 * all.capacity()).min(longest.max(came));
            if capacity > OWN && !hold(&mut kept, capacity, room).await {
                return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, FULL));
            }
            all.reserve_exact(capacity - all.len());
        }
        all.extend_from_slice(&part);
    }
    Ok((all.into(), kept))
}

async fn hold(kept: &mut Option<Kept>, bytes: usize, room: &Share) -> bool {
    if let Some(kept) = kept {
        return room.grow(kept, bytes).await;
    }
    *kept = room.hold(bytes).await;
    kept.is_some()
}

fn too_large() -> Problem {
    let detail = "the body is larger than http.body_limit allows, or than the 64 KiB of /v1/claims, /v1/claims:done and /v1/time/advance";
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, detail)
}

/// Why a body has not come to its end; `status` where it is not for its pace.
pub(super) fn unread(error: &(dyn Error + 'static), status: StatusCode) -> Problem {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    if let Some(slow) = causes.find_map(|cause| cause.downcast_ref::<TooSlow>()) {
        return Problem::new(StatusCode::REQUEST_TIMEOUT, slow.to_string());
    }
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => too_large(),
        status => Problem::new(status, "the body did not come to its end"),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream::{self, BoxStream, StreamExt as _};
    use tokio::time::Instant;

    use super::super::room::Room;
    use super::*;

    /// Bodies of parts, each of which comes after a while.
    fn of(parts: Vec<(u64, usize)>) -> Body {
        let parts: BoxStream<'_, _> = stream::iter(parts)
            .then(async |(seconds, length)| {
                sleep(Duration::from_secs(seconds)).await;
                Ok::<_, std::io::Error>(vec![b'x'; length])
            })
            .boxed();
        Body::from_stream(parts)
    }

    fn paced(parts: Vec<(u64, usize)>) -> Body {
        Body::new(Paced {
            body: of(parts),
            came: 0,
            over: None,
        })
    }

    const LIMIT: usize = 16 << 20;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_comes_too_slowly_is_left() {
        let room = Room::new(LIMIT, false).of("");
        let begin = Instant::now();
        let parts = [(0, LEAST), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1), (1, 1)];
        let problem = receive(paced(parts.to_vec()), LIMIT, &room).await.unwrap_err();
        assert_eq!(problem.status(), StatusCode::REQUEST_TIMEOUT);
        assert_eq!(begin.elapsed(), WINDOW);
        let steady = vec![(4, LEAST); 20];
        let (body, _) = receive(paced(steady), LIMIT, &room).await.unwrap();
        assert_eq!(body.len(), 20 * LEAST);
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_is_held_as_it_comes() {
        let room = Room::new(LIMIT, false);
        let share = room.of("");
        let (little, kept) = receive(of(vec![(0, 1); 4]), LIMIT, &share).await.unwrap();
        assert!((little.len(), kept.is_none()) == (4, true));
        // It says that it is long, and does not come.
        let mut body = Body::new(Said(of(vec![(0, OWN / 2), (1, OWN), (9, LIMIT)]), LIMIT as u64));
        assert_eq!(body.size_hint().exact(), Some(LIMIT as u64));
        let begin = Instant::now();
        let receiving = receive(std::mem::take(&mut body), LIMIT, &share);
        let (received, ()) = tokio::join!(receiving, async {
            sleep(Duration::from_secs(5)).await;
            let rest = room.of("").hold_at_once(LIMIT - 2 * OWN);
            assert!(rest.is_some(), "it holds what has come, or twice as much");
            assert!(room.of("").hold_at_once(LIMIT - OWN).is_none());
        });
        assert!(received.is_err() && begin.elapsed() == Duration::from_secs(10));
    }

    #[tokio::test]
    async fn a_body_that_is_too_long_is_refused() {
        let room = Room::new(LIMIT, false).of("");
        for body in [of(vec![(0, 600), (0, 600)]), Body::from(vec![0; 1_001])] {
            let problem = receive(body, 1_000, &room).await.unwrap_err();
            assert_eq!(problem.status(), StatusCode::PAYLOAD_TOO_LARGE);
        }
        let (whole, _) = receive(Body::from(vec![0; 1_000]), 1_000, &room).await.unwrap();
        assert_eq!(whole.len(), 1_000);
    }

    /// A body that says how long it is.
    struct Said(Body, u64);

    impl HttpBody for Said {
        type Data = Bytes;
        type Error = axum::Error;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
            Pin::new(&mut self.0).poll_frame(context)
        }

        fn size_hint(&self) -> SizeHint {
            SizeHint::with_exact(self.1)
        }
    }
}
