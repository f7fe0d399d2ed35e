//! Connects the client's threads, which must block until a batch is processed, with the receiver, which must not.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::closed;
use crate::Error;

/// Hands batches to receivers, and blocks the listener of each until all of it is acknowledged.
///
/// It holds no more than was delivered and not yet answered, so it needs no limit of its own.
#[derive(Debug)]
pub(crate) struct DeliveryQueue<T> {
    state: Mutex<Contents<T>>,
    arrived: Notify,
    ack_timeout: Duration,
}

#[derive(Debug)]
struct Contents<T> {
    waiting: VecDeque<Delivered<T>>,
    open: BTreeMap<u64, OpenBatch>,
    last_ticket: u64,
    /// The last batch that was forgotten, with all before it.
    forgotten: u64,
    closed: bool,
    released: bool,
}

/// A message, and the mark of its batch, by which it is acknowledged.
#[derive(Debug)]
pub(crate) struct Delivered<T> {
    pub(crate) item: T,
    pub(crate) ticket: u64,
}

/// A batch that was handed over, as the holder of its listener knows it.
pub(crate) struct Held {
    ticket: u64,
    held: Receiver<Infallible>,
}

/// A batch that is not yet acknowledged.
#[derive(Debug)]
struct OpenBatch {
    left: usize,
    /// Dropped with the batch, by which its listener is released.
    _hold: SyncSender<Infallible>,
}

impl<T> DeliveryQueue<T> {
    /// Makes a queue that blocks no listener for longer than `ack_timeout`.
    pub(crate) fn new(ack_timeout: Duration) -> Self {
        Self {
            state: Mutex::new(Contents {
                waiting: VecDeque::new(),
                open: BTreeMap::new(),
                last_ticket: 0,
                forgotten: 0,
                closed: false,
                released: false,
            }),
            arrived: Notify::new(),
            ack_timeout,
        }
    }

    /// Delivers a batch, and blocks until all of it is acknowledged, the timeout ends, or all listeners are released.
    /// Says whether it was acknowledged.
    pub(crate) fn deliver(&self, batch: Vec<T>) -> bool {
        if batch.is_empty() {
            return true;
        }
        let held = self.hand_over(batch);
        held.is_some_and(|held| self.hold(held))
    }

    /// Hands over a batch that is not empty, to be held; none, if all listeners have been released.
    pub(crate) fn hand_over(&self, batch: Vec<T>) -> Option<Held> {
        let (hold, held) = sync_channel(0);
        let ticket = {
            let mut state = self.state();
            if state.released {
                return None;
            }
            state.last_ticket += 1;
            let ticket = state.last_ticket;
            let left = batch.len();
            state.open.insert(ticket, OpenBatch { left, _hold: hold });
            let batch = batch.into_iter().map(|item| Delivered { item, ticket });
            state.waiting.extend(batch);
            ticket
        };
        self.arrived.notify_one();
        Some(Held { ticket, held })
    }

    /// Blocks until all of a batch is acknowledged, the timeout ends, or all listeners are released. Says whether it
    /// was acknowledged.
    pub(crate) fn hold(&self, Held { ticket, held }: Held) -> bool {
        match held.recv_timeout(self.ack_timeout) {
            Ok(never) => match never {},
            Err(RecvTimeoutError::Disconnected) => {
                let state = self.state();
                !state.released && ticket > state.forgotten
            }
            Err(RecvTimeoutError::Timeout) => {
                let mut state = self.state();
                state.open.remove(&ticket);
                // These would only pile up.
                state.waiting.retain(|delivered| delivered.ticket != ticket);
                false
            }
        }
    }

    /// Waits for messages and takes up to `max`, in the order in which they came.
    pub(crate) async fn take(&self, max: usize) -> Result<Vec<Delivered<T>>, Error> {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut state = self.state();
                if state.closed {
                    // For the next receiver that waits.
                    self.arrived.notify_one();
                    return Err(closed());
                }
                if !state.waiting.is_empty() {
                    let count = state.waiting.len().min(max);
                    let taken = state.waiting.drain(..count).collect();
                    if !state.waiting.is_empty() {
                        self.arrived.notify_one();
                    }
                    return Ok(taken);
                }
            }
            arrived.await;
        }
    }

    /// Counts acknowledged messages, by the marks of their batches, down from these.
    pub(crate) fn acknowledge(&self, tickets: impl IntoIterator<Item = u64>) {
        let mut state = self.state();
        for ticket in tickets {
            // Gone, if the timeout ended first.
            let Some(open) = state.open.get_mut(&ticket) else {
                continue;
            };
            open.left -= 1;
            if open.left == 0 {
                state.open.remove(&ticket);
            }
        }
    }

    /// Forgets the batches that are not acknowledged, and releases their listeners, as they come again by another way.
    /// Returns those that no receiver has taken.
    pub(crate) fn forget(&self) -> Vec<T> {
        let mut state = self.state();
        state.open.clear();
        state.forgotten = state.last_ticket;
        let waiting = std::mem::take(&mut state.waiting);
        waiting.into_iter().map(|delivered| delivered.item).collect()
    }

    /// Ends the receivers. Listeners stay blocked, so that batches without a receiver are not answered.
    pub(crate) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_one();
    }

    /// Releases all receivers and listeners.
    pub(crate) fn release(&self) {
        self.close();
        let mut state = self.state();
        state.released = true;
        state.waiting.clear();
        state.open.clear();
    }

    fn state(&self) -> MutexGuard<'_, Contents<T>> {
        // No holder of the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::{JoinHandle, spawn};

    use super::*;

    const LONG: Duration = Duration::from_secs(600);

    fn deliver(delivery_queue: &Arc<DeliveryQueue<u8>>, count: u8) -> JoinHandle<bool> {
        let delivery_queue = delivery_queue.clone();
        spawn(move || delivery_queue.deliver((0..count).collect()))
    }

    fn acknowledge(delivery_queue: &DeliveryQueue<u8>, taken: &[Delivered<u8>]) {
        delivery_queue.acknowledge(taken.iter().map(|delivered| delivered.ticket));
    }

    #[tokio::test]
    async fn a_batch_is_held_until_its_last_item_is_acknowledged() {
        let delivery_queue = Arc::new(DeliveryQueue::new(LONG));
        let listener = deliver(&delivery_queue, 5);
        let first = delivery_queue.take(3).await.unwrap();
        assert_eq!(first.len(), 3, "never more than asked for");
        acknowledge(&delivery_queue, &first);
        let rest = delivery_queue.take(100).await.unwrap();
        assert_eq!(rest.len(), 2);
        acknowledge(&delivery_queue, &rest[..1]);
        assert!(!listener.is_finished());
        acknowledge(&delivery_queue, &rest[1..]);
        assert!(joined(listener).await);
        assert!(delivery_queue.state().open.is_empty());
    }

    #[tokio::test]
    async fn the_timeout_ends_and_what_was_not_taken_is_forgotten() {
        let delivery_queue = Arc::new(DeliveryQueue::new(Duration::from_millis(20)));
        let listener = deliver(&delivery_queue, 3);
        let taken = delivery_queue.take(1).await.unwrap();
        assert!(!joined(listener).await);
        assert!(delivery_queue.state().waiting.is_empty());
        // Too late, and no harm.
        acknowledge(&delivery_queue, &taken);
    }

    #[tokio::test]
    async fn without_a_timeout_a_batch_is_held_until_it_is_acknowledged_or_forgotten() {
        let delivery_queue = Arc::new(DeliveryQueue::new(Duration::MAX));
        let (first, second) = (deliver(&delivery_queue, 2), deliver(&delivery_queue, 2));
        let mut taken = Vec::new();
        while taken.len() < 3 {
            taken.extend(delivery_queue.take(3 - taken.len()).await.unwrap());
        }
        assert!(!first.is_finished() && !second.is_finished());
        assert_eq!(delivery_queue.forget(), [1]);
        assert!(!joined(first).await && !joined(second).await);
        assert!(delivery_queue.state().waiting.is_empty());
        // Too late, and no harm; and what comes then is held as before.
        acknowledge(&delivery_queue, &taken);
        let third = deliver(&delivery_queue, 1);
        let taken = delivery_queue.take(1).await.unwrap();
        assert!(!third.is_finished());
        acknowledge(&delivery_queue, &taken);
        assert!(joined(third).await);
    }

    #[tokio::test]
    async fn every_receiver_that_waits_is_given_something() {
        let delivery_queue = Arc::new(DeliveryQueue::new(LONG));
        let receivers = [(); 3].map(|()| {
            let delivery_queue = delivery_queue.clone();
            tokio::spawn(async move { patiently(delivery_queue.take(1)).await })
        });
        tokio::task::yield_now().await;
        let listener = deliver(&delivery_queue, 3);
        for receiver in receivers {
            acknowledge(&delivery_queue, &receiver.await.unwrap().unwrap());
        }
        assert!(joined(listener).await);
    }

    #[tokio::test]
    async fn close_ends_every_receiver_and_release_every_listener() {
        let delivery_queue = Arc::new(DeliveryQueue::new(LONG));
        let receivers = [(); 3].map(|()| {
            let delivery_queue = delivery_queue.clone();
            tokio::spawn(async move { patiently(delivery_queue.take(10)).await })
        });
        tokio::task::yield_now().await;
        delivery_queue.close();
        for receiver in receivers {
            assert!(receiver.await.unwrap().is_err());
        }
        let listener = deliver(&delivery_queue, 2);
        while delivery_queue.state().open.is_empty() {
            std::thread::yield_now();
        }
        assert!(
            !listener.is_finished(),
            "a batch without a receiver must not be answered"
        );
        delivery_queue.release();
        assert!(!joined(listener).await);
        // One that comes later is not held.
        assert!(!joined(deliver(&delivery_queue, 2)).await);
    }

    #[tokio::test]
    async fn an_abandoned_receive_loses_nothing() {
        let delivery_queue = Arc::new(DeliveryQueue::new(LONG));
        let receive = || {
            let delivery_queue = delivery_queue.clone();
            tokio::spawn(async move { patiently(delivery_queue.take(10)).await })
        };
        let (hasty, patient) = (receive(), receive());
        tokio::task::yield_now().await;
        let listener = deliver(&delivery_queue, 1);
        while delivery_queue.state().open.is_empty() {
            std::thread::yield_now();
        }
        hasty.abort();
        let taken = match hasty.await {
            Ok(taken) => taken.unwrap(),
            Err(_) => patient.await.unwrap().unwrap(),
        };
        acknowledge(&delivery_queue, &taken);
        assert!(joined(listener).await);
    }

    /// Makes a test fail that would hang.
    async fn patiently<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), future)
            .await
            .expect("it comes within a minute")
    }

    async fn joined(listener: JoinHandle<bool>) -> bool {
        let joined = patiently(tokio::task::spawn_blocking(|| listener.join()));
        joined.await.unwrap().unwrap()
    }
}
