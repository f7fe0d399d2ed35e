//! The order of what is in a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lets batches of a queue pass in the order of their offsets, though a thread of the client brings each.
#[derive(Debug)]
pub(super) struct QueueOrder {
    state: Mutex<State>,
    /// Notified when a batch has passed, or those of a consumer no longer may.
    changed: Condvar,
    patience: Patience,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the consumer whose batches pass.
    consumer: u64,
    queues: BTreeMap<Queue, Progress>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Queue {
    pub(super) topic: String,
    pub(super) broker: String,
    pub(super) number: i32,
    /// Whether it is of copies: of what was given back to the broker, which names the topic that it was sent to.
    pub(super) is_of_copies: bool,
}

/// For how long a batch waits for those before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// They come, unless the queue has a gap, or went to another process and came back.
    pub(super) gap: Duration,
    /// The first batch of a queue, before which nothing is known.
    pub(super) first: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            gap: Duration::from_secs(1),
            first: Duration::from_millis(200),
        }
    }
}

#[derive(Debug, Default)]
struct Progress {
    /// The offset that is next; none before the first batch.
    next: Option<i64>,
    /// Where the batches begin that wait.
    waiting: BTreeSet<i64>,
}

impl Progress {
    /// Whether a batch that begins at `first` may pass: it is next, or comes again; or it has waited for as long as one
    /// does, and is the earliest of those that wait.
    fn may_pass(&self, first: i64, has_waited: bool) -> bool {
        self.next.is_some_and(|next| first <= next)
            || has_waited && self.waiting.first().is_none_or(|&earliest| first <= earliest)
    }
}

impl QueueOrder {
    pub(super) fn new(patience: Patience) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            patience,
        }
    }

    /// Blocks until those before it have passed, and gives `pass` its turn; none, if the consumer that brings it is no longer
    /// the one whose batches pass.
    pub(super) fn in_turn<T>(
        &self,
        consumer: u64,
        queue: &Queue,
        (first, last): (i64, i64),
        pass: impl FnOnce() -> T,
    ) -> Option<T> {
        let began = Instant::now();
        let mut state = self.state();
        loop {
            if state.consumer != consumer {
                return None;
            }
            let progress = state.queues.entry(queue.clone()).or_default();
            progress.waiting.insert(first);
            let patience = match progress.next {
                Some(_) => self.patience.gap,
                None => self.patience.first,
            };
            let left = patience.saturating_sub(began.elapsed());
            if progress.may_pass(first, left.is_zero()) {
                progress.waiting.remove(&first);
                // What comes again takes nothing back.
                progress.next = progress.next.max(Some(last + 1));
                break;
            }
            // One that is not the earliest goes on waiting for that.
            let wait = if left.is_zero() { self.patience.first } else { left };
            let waited = self.changed.wait_timeout(state, wait.max(LEAST));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // Within the turn: what passes next is behind it.
        let came = pass();
        drop(state);
        self.changed.notify_all();
        Some(came)
    }

    /// From now on batches of the next consumer pass, and no others. `forget` says what has passed and comes again
    /// nevertheless, each by its queue and offset: nothing behind it passes before it. Gives the next consumer's number.
    pub(super) fn next_consumer(&self, forget: impl FnOnce() -> Vec<(Queue, i64)>) -> u64 {
        let mut state = self.state();
        state.consumer += 1;
        state
            .queues
            .values_mut()
            .for_each(|progress| progress.waiting.clear());
        for (queue, offset) in forget() {
            let progress = state.queues.entry(queue).or_default();
            progress.next = progress.next.map(|next| next.min(offset));
        }
        let consumer = state.consumer;
        drop(state);
        self.changed.notify_all();
        consumer
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The shortest wait, so that none is a loop.
const LEAST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;
    use std::thread::spawn;

    use super::*;

    fn queue(number: i32) -> Queue {
        Queue {
            number,
            ..Queue::default()
        }
    }

    fn order(gap: Duration) -> Arc<QueueOrder> {
        let first = Duration::ZERO;
        Arc::new(QueueOrder::new(Patience { gap, first }))
    }

    /// Lets 32 messages pass, of the first consumer.
    fn pass(order: &QueueOrder, number: i32, first: i64) {
        let passed = order.in_turn(0, &queue(number), (first, first + 31), || ());
        assert_eq!(passed, Some(()));
    }

    #[test]
    fn batches_pass_in_the_order_of_their_queue_whichever_comes_first() {
        let order = order(Duration::from_secs(600));
        pass(&order, 0, 0);
        let (send, passed) = channel();
        let threads = [96, 64, 32].map(|first| {
            let (order, send) = (Arc::clone(&order), send.clone());
            spawn(move || order.in_turn(0, &queue(0), (first, first + 31), || send.send(first).unwrap()))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        drop(send);
        assert_eq!(passed.iter().collect::<Vec<_>>(), [32, 64, 96]);
        // Another queue is another matter, and what comes again waits for nothing.
        pass(&order, 1, 500);
        pass(&order, 0, 0);
        pass(&order, 0, 128);
    }

    #[test]
    fn what_never_comes_is_not_waited_for_for_ever() {
        let order = order(Duration::ZERO);
        pass(&order, 0, 0);
        pass(&order, 0, 64);
    }

    #[test]
    fn what_is_forgotten_passes_again_before_what_is_behind_it() {
        let order = order(Duration::from_secs(600));
        pass(&order, 0, 0);
        pass(&order, 0, 32);
        pass(&order, 1, 0);
        let next = order.next_consumer(|| vec![(queue(0), 32), (queue(0), 40)]);
        assert_eq!(next, 1);
        let (send, passed) = channel();
        let threads = [64, 32].map(|first| {
            let (order, send) = (Arc::clone(&order), send.clone());
            spawn(move || order.in_turn(next, &queue(0), (first, first + 31), || send.send(first).unwrap()))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        drop(send);
        assert_eq!(passed.iter().collect::<Vec<_>>(), [32, 64]);
        // Of the other queue nothing was forgotten.
        assert_eq!(order.in_turn(next, &queue(1), (32, 63), || ()), Some(()));
    }

    #[test]
    fn what_an_earlier_consumer_still_holds_does_not_pass() {
        let order = order(Duration::from_secs(600));
        pass(&order, 0, 0);
        let waiting = {
            let order = Arc::clone(&order);
            spawn(move || order.in_turn(0, &queue(0), (64, 95), || ()))
        };
        while order.state().queues[&queue(0)].waiting.is_empty() {
            std::thread::yield_now();
        }
        let next = order.next_consumer(Vec::new);
        assert_eq!(waiting.join().unwrap(), None);
        assert_eq!(order.in_turn(0, &queue(0), (32, 63), || ()), None);
        assert_eq!(order.in_turn(next, &queue(0), (32, 63), || ()), Some(()));
    }

    #[test]
    fn where_nothing_is_known_the_earliest_passes_first() {
        let waiting = |next| Progress {
            next,
            waiting: [0, 32].into(),
        };
        for (next, first, has_waited, passes) in [
            (None, 0, false, false),
            (None, 32, false, false),
            (None, 32, true, false),
            (None, 0, true, true),
            (Some(32), 32, false, true),
            (Some(64), 0, false, true),
            (Some(-32), 32, true, false),
            (Some(-32), 0, true, true),
        ] {
            let progress = waiting(next);
            assert_eq!(
                progress.may_pass(first, has_waited),
                passes,
                "{next:?} {first} {has_waited}"
            );
        }
    }
}
