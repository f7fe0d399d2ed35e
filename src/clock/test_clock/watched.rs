//! Knowing whether anything is under way.

use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use super::Turned;

/// Something is under way until this is dropped.
#[derive(Debug)]
pub(crate) struct Busy(Arc<Turned>);

impl Busy {
    pub(in crate::clock) fn begin(turned: &Arc<Turned>) -> Self {
        turned.begin();
        Self(Arc::clone(turned))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A future that is under way whenever it has something to do: from when it is made or woken until it waits.
pub(in crate::clock) struct Watched<F> {
    future: Pin<Box<F>>,
    watch: Arc<Watch>,
}

impl<F> Watched<F> {
    pub(in crate::clock) fn new(turned: &Arc<Turned>, future: F) -> Self {
        let watch = Watch {
            turned: Arc::clone(turned),
            state: Mutex::new(State {
                busy: Some(Busy::begin(turned)),
                ..State::default()
            }),
        };
        Self {
            future: Box::pin(future),
            watch: Arc::new(watch),
        }
    }
}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.watch.polled(context.waker());
        let waker = Waker::from(Arc::clone(&self.watch));
        let polled = self.future.as_mut().poll(&mut Context::from_waker(&waker));
        match polled.is_ready() {
            true => self.watch.ended(),
            false => self.watch.waits(),
        }
        polled
    }
}

impl<F> Drop for Watched<F> {
    fn drop(&mut self) {
        self.watch.ended();
    }
}

/// What wakes a future, and counts it as under way.
struct Watch {
    turned: Arc<Turned>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    busy: Option<Busy>,
    /// Since it was polled last.
    is_woken: bool,
    has_ended: bool,
    /// Of its last poll.
    outer: Option<Waker>,
}

impl Watch {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn polled(&self, outer: &Waker) {
        let mut state = self.state();
        state.is_woken = false;
        state.outer = Some(outer.clone());
        state.busy.get_or_insert_with(|| Busy::begin(&self.turned));
    }

    fn waits(&self) {
        let mut state = self.state();
        if !state.is_woken {
            let busy = state.busy.take();
            drop(state);
            drop(busy);
        }
    }

    fn ended(&self) {
        let ended = State {
            has_ended: true,
            ..State::default()
        };
        // Without the lock: what is let go of may be the last handle of others.
        let before = std::mem::replace(&mut *self.state(), ended);
        drop(before);
    }
}

impl Wake for Watch {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let outer = {
            let mut state = self.state();
            if state.has_ended {
                return;
            }
            state.is_woken = true;
            state.busy.get_or_insert_with(|| Busy::begin(&self.turned));
            state.outer.clone()
        };
        if let Some(outer) = outer {
            outer.wake();
        }
    }
}
