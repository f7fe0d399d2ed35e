//! Keeps the order of each queue.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lets batches of a queue pass in the order of their offsets, though each comes on a thread of its own.
#[derive(Debug)]
pub(super) struct QueueOrder {
    state: Mutex<State>,
    /// Notified when a batch has passed, or those of a consumer no longer may.
    changed: Condvar,
    limits: WaitLimits,
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
    /// Whether it has copies: messages that were given back to the broker, and that name their first topic.
    pub(super) is_of_copies: bool,
}

/// For how long a batch waits for those before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitLimits {
    /// Before the broker is asked for them: mostly they are with another thread.
    pub(super) before_asking: Duration,
    /// Before it is asked again.
    pub(super) between: Duration,
    /// Where it does not answer.
    pub(super) unanswered: Duration,
    /// Where the group has not acknowledged them, so that they will come.
    pub(super) promised: Duration,
}

impl Default for WaitLimits {
    fn default() -> Self {
        Self {
            before_asking: Duration::from_millis(20),
            between: Duration::from_millis(500),
            unanswered: Duration::from_secs(1),
            promised: Duration::from_secs(30),
        }
    }
}

#[derive(Debug, Default)]
struct Progress {
    /// The offset that is next; none before the first batch.
    next: Option<i64>,
    /// Where the waiting batches begin.
    waiting: BTreeSet<i64>,
}

impl Progress {
    /// Says whether a batch that begins at `first` may pass: it is next, or comes again; or it waits for nothing more,
    /// and is the earliest of those that wait.
    fn may_pass(&self, first: i64, is_free: bool) -> bool {
        self.next.is_some_and(|next| first <= next) || is_free && self.is_earliest(first)
    }

    fn is_earliest(&self, first: i64) -> bool {
        self.waiting.first().is_none_or(|&earliest| first <= earliest)
    }
}

impl QueueOrder {
    pub(super) fn new(limits: WaitLimits) -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            limits,
        }
    }

    /// Blocks until the batches before it have passed, and runs `pass` in its turn; none, if its consumer is no longer
    /// the one whose batches pass.
    ///
    /// Where those before it do not come, `next_offset` asks the broker for the group's next offset: batches before that
    /// are acknowledged, by this process or another, and never come.
    pub(super) fn in_turn<T>(
        &self,
        consumer: u64,
        queue: &Queue,
        (first, last): (i64, i64),
        next_offset: impl Fn() -> Option<i64>,
        pass: impl FnOnce() -> T,
    ) -> Option<T> {
        let began = Instant::now();
        let mut ask_at = began + self.limits.before_asking;
        let (mut free_at, mut is_acknowledged) = (None, false);
        let mut state = self.state();
        loop {
            if state.consumer != consumer {
                return None;
            }
            let progress = state.queues.entry(queue.clone()).or_default();
            progress.waiting.insert(first);
            let now = Instant::now();
            if progress.may_pass(first, free_at.is_some_and(|free_at| free_at <= now)) {
                progress.waiting.remove(&first);
                if let Some(next) = progress.next
                    && next < first
                    && !is_acknowledged
                {
                    tracing::warn!(
                        ?queue,
                        from = next,
                        to = first,
                        "messages of a queue do not come and are overtaken by those behind them, so one of the same key may \
                         be answered conflict or existing"
                    );
                }
                tracing::trace!(?queue, first, last, next = ?progress.next, "a batch passes");
                // A repeat does not move it back.
                progress.next = progress.next.max(Some(last + 1));
                break;
            }
            if progress.is_earliest(first) && ask_at <= now {
                drop(state);
                let next_offset = next_offset();
                is_acknowledged = next_offset.is_some_and(|offset| offset >= first);
                free_at = match next_offset {
                    Some(_) if is_acknowledged => Some(now),
                    Some(_) => Some(began + self.limits.promised),
                    None => free_at.or(Some(began + self.limits.unanswered)),
                };
                ask_at = Instant::now() + self.limits.between;
                state = self.state();
                continue;
            }
            let until = free_at.map_or(ask_at, |free_at| free_at.min(ask_at));
            // If it is not the earliest, it goes on waiting for that.
            let wait = match until.saturating_duration_since(now) {
                Duration::ZERO => self.limits.between,
                wait => wait,
            };
            let waited = self.changed.wait_timeout(state, wait.max(LEAST));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        // Within the turn: the next one to pass is behind it.
        let came = pass();
        drop(state);
        self.changed.notify_all();
        Some(came)
    }

    /// Makes the next consumer the one whose batches pass. `forget` returns the batches that have passed and come again
    /// nevertheless, each by its queue and offset: nothing behind them passes before them. Returns the next consumer's
    /// number.
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

/// The shortest wait, so that no loop spins.
const LEAST: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use std::cell::Cell;
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

    const LONG: Duration = Duration::from_secs(600);

    fn order() -> Arc<QueueOrder> {
        Arc::new(QueueOrder::new(WaitLimits {
            before_asking: Duration::ZERO,
            between: LEAST,
            unanswered: Duration::ZERO,
            promised: LONG,
        }))
    }

    /// The answer for a group that has acknowledged nothing yet.
    fn nothing() -> Option<i64> {
        Some(0)
    }

    /// Lets 32 messages pass, of the first consumer.
    fn pass(order: &QueueOrder, number: i32, first: i64) {
        let passed = order.in_turn(0, &queue(number), (first, first + 31), nothing, || ());
        assert_eq!(passed, Some(()));
    }

    /// Brings each of these batches on a thread, and returns them in the order in which they passed.
    fn passed<const N: usize>(order: &Arc<QueueOrder>, consumer: u64, firsts: [i64; N]) -> Vec<i64> {
        let (send, passed) = channel();
        let threads = firsts.map(|first| {
            let (order, send) = (Arc::clone(order), send.clone());
            spawn(move || {
                let span = (first, first + 31);
                order.in_turn(consumer, &queue(0), span, nothing, || send.send(first).unwrap())
            })
        });
        for thread in threads {
            thread.join().unwrap();
        }
        drop(send);
        passed.iter().collect()
    }

    #[test]
    fn batches_pass_in_the_order_of_their_queue_whichever_comes_first() {
        let order = order();
        pass(&order, 0, 0);
        assert_eq!(passed(&order, 0, [96, 64, 32]), [32, 64, 96]);
        // Another queue is independent, and a repeat waits for nothing.
        pass(&order, 1, 0);
        pass(&order, 0, 0);
        pass(&order, 0, 128);
    }

    #[test]
    fn the_first_batch_of_a_queue_waits_for_what_the_group_has_not_acknowledged() {
        assert_eq!(passed(&order(), 0, [64, 32, 0]), [0, 32, 64]);
    }

    #[test]
    fn what_the_group_has_acknowledged_is_not_waited_for() {
        let order = order();
        pass(&order, 0, 0);
        let asked = Cell::new(0);
        // By another process, meanwhile.
        let next_offset = || Some(asked.replace(asked.get() + 32));
        order.in_turn(0, &queue(0), (64, 95), next_offset, || ());
        assert_eq!(asked.get(), 96, "asked until it is acknowledged");
        order.in_turn(0, &queue(1), (500, 531), || Some(500), || ());
    }

    #[test]
    fn a_broker_that_does_not_answer_takes_no_promise_back() {
        let order = order();
        pass(&order, 0, 0);
        order.in_turn(0, &queue(0), (64, 95), || None, || ());
        let answers = Cell::new([Some(0), None, Some(200)].into_iter());
        let next_offset = || {
            let mut left = answers.take();
            let answer = left.next().unwrap();
            answers.set(left);
            answer
        };
        order.in_turn(0, &queue(0), (128, 159), next_offset, || ());
        assert_eq!(answers.take().len(), 0);
    }

    #[test]
    fn what_never_comes_is_not_waited_for_for_ever() {
        let order = QueueOrder::new(WaitLimits {
            before_asking: Duration::ZERO,
            between: LEAST,
            unanswered: LONG,
            promised: Duration::ZERO,
        });
        pass(&order, 0, 0);
        pass(&order, 0, 64);
    }

    #[test]
    fn what_is_forgotten_passes_again_before_what_is_behind_it() {
        let order = order();
        pass(&order, 0, 0);
        pass(&order, 0, 32);
        pass(&order, 1, 0);
        let next = order.next_consumer(|| vec![(queue(0), 32), (queue(0), 40)]);
        assert_eq!(next, 1);
        assert_eq!(passed(&order, next, [64, 32]), [32, 64]);
        // Of the other queue nothing was forgotten.
        assert_eq!(order.in_turn(next, &queue(1), (32, 63), nothing, || ()), Some(()));
    }

    #[test]
    fn what_an_earlier_consumer_still_holds_does_not_pass() {
        let order = order();
        pass(&order, 0, 0);
        let waiting = {
            let order = Arc::clone(&order);
            spawn(move || order.in_turn(0, &queue(0), (64, 95), nothing, || ()))
        };
        while order.state().queues[&queue(0)].waiting.is_empty() {
            std::thread::yield_now();
        }
        let next = order.next_consumer(Vec::new);
        assert_eq!(waiting.join().unwrap(), None);
        assert_eq!(order.in_turn(0, &queue(0), (32, 63), nothing, || ()), None);
        assert_eq!(order.in_turn(next, &queue(0), (32, 63), nothing, || ()), Some(()));
    }

    #[test]
    fn where_nothing_is_known_the_earliest_passes_first() {
        let waiting = |next| Progress {
            next,
            waiting: [0, 32].into(),
        };
        for (next, first, is_free, passes) in [
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
                progress.may_pass(first, is_free),
                passes,
                "{next:?} {first} {is_free}"
            );
        }
    }
}
