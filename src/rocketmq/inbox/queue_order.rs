//! The order of what is in a queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lets batches of a queue pass in the order of their offsets, though a thread of the client brings each.
#[derive(Debug)]
pub(super) struct QueueOrder {
    queues: Mutex<BTreeMap<Queue, Progress>>,
    passed: Condvar,
    patience: Patience,
}

/// A queue: its topic, its broker, and its number there.
pub(super) type Queue = (String, String, i32);

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
            first: Duration::from_millis(20),
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
            queues: Mutex::default(),
            passed: Condvar::new(),
            patience,
        }
    }

    /// Blocks until those before it have passed, and gives `pass` its turn.
    pub(super) fn in_turn<T>(&self, queue: Queue, first: i64, last: i64, pass: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.entry(queue.clone()).or_default().waiting.insert(first);
        loop {
            let progress = queues.entry(queue.clone()).or_default();
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
            let waited = self.passed.wait_timeout(queues, wait.max(LEAST));
            queues = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // Within the turn: what passes next is behind it.
        let came = pass();
        drop(queues);
        self.passed.notify_all();
        came
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
        ("t".into(), "broker-a".into(), number)
    }

    fn order(gap: Duration) -> Arc<QueueOrder> {
        let first = Duration::ZERO;
        Arc::new(QueueOrder::new(Patience { gap, first }))
    }

    #[test]
    fn batches_pass_in_the_order_of_their_queue_whichever_comes_first() {
        let order = order(Duration::from_secs(600));
        order.in_turn(queue(0), 0, 31, || ());
        let (send, passed) = channel();
        let threads = [96, 64, 32].map(|first| {
            let (order, send) = (Arc::clone(&order), send.clone());
            spawn(move || order.in_turn(queue(0), first, first + 31, || send.send(first).unwrap()))
        });
        for thread in threads {
            thread.join().unwrap();
        }
        drop(send);
        assert_eq!(passed.iter().collect::<Vec<_>>(), [32, 64, 96]);
        // Another queue is another matter, and what comes again waits for nothing.
        order.in_turn(queue(1), 500, 531, || ());
        order.in_turn(queue(0), 0, 31, || ());
        order.in_turn(queue(0), 128, 159, || ());
    }

    #[test]
    fn what_never_comes_is_not_waited_for_for_ever() {
        let order = order(Duration::ZERO);
        order.in_turn(queue(0), 0, 31, || ());
        order.in_turn(queue(0), 64, 95, || ());
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
