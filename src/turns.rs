//! A few calls in flight at once, and slow ones aside.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Clock;

/// How many calls are in flight: the store works on one while the answer of the other travels.
const CALLS: usize = 2;
/// After how long a call counts no more among these: it may wait for a row that another transaction has locked, and
/// must not hold up those who want nothing of that row.
const SLOW: Duration = Duration::from_millis(100);
/// How many calls are in flight at the most, slow ones included.
const CALLS_AT_MOST: usize = 16;

/// Says when the next call of a stream of calls may begin.
#[derive(Debug)]
pub(crate) struct Turns {
    turns: Arc<Semaphore>,
    bound: Arc<Semaphore>,
    clock: Clock,
}

/// The right to one call.
pub(crate) struct Turn {
    turn: OwnedSemaphorePermit,
    _bound: OwnedSemaphorePermit,
    clock: Clock,
}

impl Turns {
    pub(crate) fn new(clock: Clock) -> Self {
        Self {
            turns: Arc::new(Semaphore::new(CALLS)),
            bound: Arc::new(Semaphore::new(CALLS_AT_MOST)),
            clock,
        }
    }

    /// Waits for the next turn.
    pub(crate) async fn next(&self) -> Turn {
        let bound = permit(&self.bound).await;
        let turn = permit(&self.turns).await;
        Turn {
            turn,
            _bound: bound,
            clock: self.clock.clone(),
        }
    }
}

async fn permit(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let permit = Arc::clone(semaphore).acquire_owned().await;
    permit.unwrap_or_else(|_| unreachable!("neither semaphore is ever closed"))
}

impl Turn {
    /// Carries out the call, and lets another begin early if it is slow.
    pub(crate) async fn take<T>(self, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        match self.clock.timeout(SLOW, call.as_mut()).await {
            Some(done) => done,
            None => {
                drop(self.turn);
                call.await
            }
        }
    }
}
