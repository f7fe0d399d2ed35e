//! A body that has something with it until it is sent, or its client has gone away.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

/// A body, and what is dropped with it.
pub(super) struct BodyWith<K> {
    body: Body,
    _kept: K,
}

impl<K> BodyWith<K> {
    pub(super) fn new(body: Body, kept: K) -> Self {
        Self { body, _kept: kept }
    }
}

impl<K: Unpin> HttpBody for BodyWith<K> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
