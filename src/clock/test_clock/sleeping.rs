//! Sleeping until a clock is turned.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::time::Instant;

use super::Turned;

/// Ends when the clock is turned so far.
pub(super) struct Sleeping<'c> {
    turned: &'c Turned,
    until: Instant,
    /// Its number among those that sleep, once it does.
    number: Option<u64>,
}

impl<'c> Sleeping<'c> {
    pub(super) fn new(turned: &'c Turned, until: Instant) -> Self {
        Self {
            turned,
            until,
            number: None,
        }
    }
}

impl Future for Sleeping<'_> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.turned.state();
        if self.turned.origin + state.by >= self.until {
            return Poll::Ready(());
        }
        let number = *self.number.get_or_insert_with(|| {
            state.slept += 1;
            state.slept
        });
        state
            .sleepers
            .insert((self.until, number), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleeping<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = self.turned.state().sleepers.remove(&(self.until, number));
            // Without the lock: it may be the last handle of what takes it.
            drop(waker);
        }
    }
}
