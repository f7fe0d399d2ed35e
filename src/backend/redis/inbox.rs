//! Wake-ups that were taken from Redis and wait for a receiver, and receivers that wait for wake-ups.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::closed;
use crate::{Error, Wake};

/// Between the one task that talks to Redis and any number of receivers.
///
/// A receiver takes wake-ups out of here in the very step in which it answers. So a receiver that is dropped while it
/// waits loses nothing: what was taken for it is here for the next one.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    /// For receivers: something has arrived, or it is over.
    arrived: Notify,
    /// For the task: receivers want something.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    taken: VecDeque<Wake>,
    /// When the lease of what was taken ends: from then on it may be given to others.
    leased_until: Option<Instant>,
    /// How many wake-ups the waiting receivers would take together.
    wanted: usize,
    failure: Option<Error>,
    closed: bool,
}

impl Inbox {
    /// Up to `max` wake-ups, when there is at least one.
    pub(super) async fn receive(&self, max: usize) -> Result<Vec<Wake>, Error> {
        let mut arrived = std::pin::pin!(self.arrived.notified());
        // From here on no arrival is missed.
        arrived.as_mut().enable();
        if let Some(wakes) = self.take(max)? {
            return Ok(wakes);
        }
        let _want = self.want(max);
        loop {
            arrived.as_mut().await;
            arrived.set(self.arrived.notified());
            arrived.as_mut().enable();
            if let Some(wakes) = self.take(max)? {
                return Ok(wakes);
            }
            // Others took what had arrived.
            self.wanted.notify_one();
        }
    }

    fn take(&self, max: usize) -> Result<Option<Vec<Wake>>, Error> {
        let mut state = self.state();
        if state.closed {
            return Err(closed());
        }
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        state.drop_expired();
        if state.taken.is_empty() {
            return Ok(None);
        }
        let count = max.min(state.taken.len());
        Ok(Some(state.taken.drain(..count).collect()))
    }

    fn want(&self, max: usize) -> Want<'_> {
        self.state().wanted += max;
        self.wanted.notify_one();
        Want { inbox: self, max }
    }

    /// How many wake-ups to take from Redis, when receivers wait for some and none are here.
    pub(super) async fn wanted(&self) -> usize {
        loop {
            if let Some(wanted) = self.wanted_now() {
                return wanted;
            }
            // Holds one permit: a want between the look and the wait is not missed.
            self.wanted.notified().await;
        }
    }

    /// The same, or none if nobody waits.
    pub(super) fn wanted_now(&self) -> Option<usize> {
        let mut state = self.state();
        state.drop_expired();
        (state.wanted > 0 && state.taken.is_empty()).then_some(state.wanted)
    }

    /// Puts in what was taken on a lease that ends at `leased_until`.
    pub(super) fn put(&self, wakes: Vec<Wake>, leased_until: Instant) {
        let mut state = self.state();
        state.taken.extend(wakes);
        state.leased_until = Some(leased_until);
        drop(state);
        self.arrived.notify_waiters();
    }

    /// Lets one receiver fail.
    pub(super) fn fail(&self, failure: Error) {
        self.state().failure = Some(failure);
        self.arrived.notify_waiters();
    }

    /// Lets every receiver fail, now and later.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        state.taken.clear();
        drop(state);
        self.arrived.notify_waiters();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state().closed
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn drop_expired(&mut self) {
        if self.leased_until.is_some_and(|end| end <= Instant::now()) {
            self.taken.clear();
        }
    }
}

/// A receiver that waits.
struct Want<'a> {
    inbox: &'a Inbox,
    max: usize,
}

impl Drop for Want<'_> {
    fn drop(&mut self) {
        let mut state = self.inbox.state();
        state.wanted -= self.max;
        if state.wanted == 0 {
            // A later receiver finds out for itself.
            state.failure = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;
    use crate::TaskId;

    fn wake(version: u64) -> Wake {
        Wake {
            id: TaskId::from_bytes([1; 16]),
            kind: "k".into(),
            version,
        }
    }

    fn in_a_minute() -> Instant {
        Instant::now() + Duration::from_secs(60)
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_dropped_receiver_waited_for_goes_to_the_next() {
        let inbox = Inbox::default();
        {
            let mut receive = pin!(inbox.receive(10));
            assert!(timeout(Duration::from_secs(1), receive.as_mut()).await.is_err());
            assert_eq!(inbox.wanted().await, 10);
            inbox.put(vec![wake(1), wake(2)], in_a_minute());
        }
        assert_eq!(inbox.receive(1).await.expect("one"), [wake(1)]);
        assert_eq!(inbox.receive(5).await.expect("the other"), [wake(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_taken_from_redis_for_receivers_that_have_left() {
        let inbox = Inbox::default();
        assert!(timeout(Duration::from_secs(1), inbox.receive(10)).await.is_err());
        assert_eq!(inbox.wanted_now(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_fetched_before_its_lease_ended_is_left_to_others() {
        let inbox = Inbox::default();
        inbox.put(vec![wake(1)], in_a_minute());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(timeout(Duration::from_secs(1), inbox.receive(10)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_share_what_arrives() {
        let inbox = Inbox::default();
        let (first, second, ()) = tokio::join!(inbox.receive(1), inbox.receive(1), async {
            assert_eq!(inbox.wanted().await, 2);
            inbox.put(vec![wake(1), wake(2)], in_a_minute());
        });
        let mut both = [first.expect("one"), second.expect("one")].concat();
        both.sort();
        assert_eq!(both, [wake(1), wake(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_nothing_left_keeps_wanting() {
        let inbox = Inbox::default();
        let (first, second, ()) = tokio::join!(inbox.receive(9), inbox.receive(9), async {
            inbox.wanted().await;
            inbox.put(vec![wake(1)], in_a_minute());
            let wanted = timeout(Duration::from_secs(1), inbox.wanted()).await;
            assert_eq!(wanted.expect("one still waits"), 9);
            inbox.put(vec![wake(2)], in_a_minute());
        });
        let both = [first.expect("one"), second.expect("one")].concat();
        assert_eq!(both.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failure_is_given_to_one_waiting_receiver_and_to_no_later_one() {
        let inbox = Inbox::default();
        {
            let mut receive = pin!(inbox.receive(10));
            assert!(timeout(Duration::from_secs(1), receive.as_mut()).await.is_err());
            inbox.fail(closed());
            assert!(receive.await.is_err());
        }
        {
            let mut receive = pin!(inbox.receive(10));
            assert!(timeout(Duration::from_secs(1), receive.as_mut()).await.is_err());
            inbox.fail(closed());
        }
        assert!(timeout(Duration::from_secs(1), inbox.receive(10)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_pending_and_later_receivers() {
        let inbox = Inbox::default();
        let (received, ()) = tokio::join!(inbox.receive(1), async {
            inbox.wanted().await;
            inbox.close();
        });
        assert!(received.is_err());
        assert!(inbox.receive(1).await.is_err());
    }
}
