//! Sends what waits in few calls: some at once, each with all that has come until then. A slow one holds up no others.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};

use crate::clock::Clock;
use crate::defaults;

/// How many calls are in flight, usually: the store works on one while the answer of the other travels.
pub(crate) const CALLS: usize = 2;
/// After how long a call counts no more among these: it may wait for a row that another transaction has locked, and
/// must not hold up those who want nothing of that row.
const SLOW: Duration = Duration::from_millis(100);
/// How many calls are in flight at the most, slow ones included.
const CALLS_AT_MOST: usize = 16;

/// Begins a call with all that waits, as far as it goes into one, whenever fewer than `calls` are in flight, until no
/// more can be sent.
///
/// `ended` is told of each call that has ended meanwhile; those still in flight are given back.
pub(crate) async fn run_batched<T, F>(
    clock: &Clock,
    calls: usize,
    waiting: mpsc::UnboundedReceiver<T>,
    load: impl Fn(&T) -> Load,
    call: impl Fn(Vec<T>, CallPermit) -> F,
    ended: impl Fn(Result<(), JoinError>),
) -> JoinSet<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let (turns, bound) = (
        Arc::new(Semaphore::new(calls)),
        Arc::new(Semaphore::new(CALLS_AT_MOST)),
    );
    let mut queue = Queue {
        waiting,
        left: None,
        load,
    };
    let mut calls = JoinSet::new();
    loop {
        // Before what waits: what comes until then is in the same call.
        let turn = CallPermit {
            _bound: permit(&bound).await,
            turn: permit(&turns).await,
            clock: clock.clone(),
        };
        let batch = loop {
            tokio::select! {
                biased;
                Some(call) = calls.join_next() => ended(call),
                batch = queue.next() => break batch,
            }
        };
        match batch {
            Some(batch) => clock.spawn_in(&mut calls, call(batch, turn)),
            None => return calls,
        };
    }
}

async fn permit(semaphore: &Arc<Semaphore>) -> OwnedSemaphorePermit {
    let permit = Arc::clone(semaphore).acquire_owned().await;
    permit.unwrap_or_else(|_| unreachable!("neither semaphore is ever closed"))
}

/// How much something adds to a call, of which [`defaults::BATCH`] and [`defaults::BATCH_BYTES`] go into one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
}

impl Load {
    /// One item, whose bytes do not count.
    pub(crate) const ONE: Self = Self { items: 1, bytes: 0 };
}

/// What waits, in the order in which it came.
struct Queue<T, L> {
    waiting: mpsc::UnboundedReceiver<T>,
    /// The first for which there was no room in the last call.
    left: Option<T>,
    load: L,
}

impl<T, L: Fn(&T) -> Load> Queue<T, L> {
    /// Waits until there is something; gives all that there is, as far as it goes into one call. None: there are no
    /// senders left. Nothing is taken before the last await.
    async fn next(&mut self) -> Option<Vec<T>> {
        let mut batch = Vec::new();
        let (mut items, mut bytes) = (0, 0);
        loop {
            let next = match self.left.take() {
                Some(left) => left,
                None if batch.is_empty() => self.waiting.recv().await?,
                None => match self.waiting.try_recv() {
                    Ok(next) => next,
                    Err(_) => return Some(batch),
                },
            };
            let load = (self.load)(&next);
            items += load.items;
            bytes += load.bytes;
            if !batch.is_empty() && (items > defaults::BATCH || bytes > defaults::BATCH_BYTES) {
                self.left = Some(next);
                return Some(batch);
            }
            batch.push(next);
        }
    }
}

/// The right to one call.
pub(crate) struct CallPermit {
    turn: OwnedSemaphorePermit,
    _bound: OwnedSemaphorePermit,
    clock: Clock,
}

impl CallPermit {
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
