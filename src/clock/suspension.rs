//! A simulated process that sleeps while the world goes on.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep};

/// When the process of a simulated clock was suspended, and for how long in all.
///
/// While it is, its monotonic clock stands still and none of the tasks that it started through its clock goes on.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspension(Arc<Mutex<Slept>>);

#[derive(Debug, Default)]
struct Slept {
    /// In suspensions that are over.
    before: Duration,
    /// The last one: from and until when.
    last: Option<(Instant, Instant)>,
}

impl Suspension {
    fn slept(&self) -> MutexGuard<'_, Slept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Suspends the process for `span` from now; one that is suspended already stays so for longer.
    pub(super) fn begin(&self, span: Duration) {
        let now = Instant::now();
        let mut slept = self.slept();
        let mut until = now + span;
        let from = match slept.last {
            Some((from, before)) if before > now => {
                until = until.max(before);
                from
            }
            Some((from, before)) => {
                slept.before += before - from;
                now
            }
            None => now,
        };
        slept.last = Some((from, until));
    }

    /// How long the process has slept in all, up to now.
    pub(super) fn so_far(&self) -> Duration {
        let slept = self.slept();
        let last = slept.last.map(|(from, until)| until.min(Instant::now()) - from);
        slept.before + last.unwrap_or_default()
    }

    /// The end of the suspension that is going on.
    fn until(&self) -> Option<Instant> {
        let (_, until) = self.slept().last?;
        (until > Instant::now()).then_some(until)
    }

    /// Ends when the process is awake.
    pub(super) async fn awake(&self) {
        while let Some(until) = self.until() {
            tokio::time::sleep_until(until).await;
        }
    }

    /// The same future, which stands still while the process is suspended.
    pub(super) fn freeze<F: Future>(&self, future: F) -> Freezing<F> {
        Freezing {
            suspension: self.clone(),
            waking: None,
            future: Box::pin(future),
        }
    }
}

/// A future that goes on only while its process is awake.
pub(super) struct Freezing<F> {
    suspension: Suspension,
    waking: Option<Pin<Box<Sleep>>>,
    future: Pin<Box<F>>,
}

impl<F: Future> Future for Freezing<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        while let Some(until) = self.suspension.until() {
            let waking = self
                .waking
                .get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
            waking.as_mut().reset(until);
            match waking.as_mut().poll(context) {
                Poll::Ready(()) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        self.waking = None;
        self.future.as_mut().poll(context)
    }
}
