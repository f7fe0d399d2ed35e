//! Holds wake-ups that wait for a receiver, and receivers that wait for wake-ups.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::backend::Arrival;
use crate::redis::Role;
use crate::{Error, defaults};

/// How many wake-ups without a receiver are taken from Redis at the most, whatever receivers want.
pub(super) const MOST: usize = 8 * defaults::BATCH;

/// Connects the one task that talks to Redis with any number of receivers.
///
/// A receiver takes wake-ups out of here in the very step in which it answers. So a receiver that is dropped while it
/// waits loses nothing: its wake-ups stay here for the next one.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: Mutex<State>,
    /// For receivers: something has arrived, or this is closed.
    arrived: Notify,
    /// For the task: receivers want something.
    wanted: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The taken wake-ups, each with the end of its lease: from then on another process may get them.
    taken: VecDeque<(Arrival, Instant)>,
    /// How many wake-ups the waiting receivers would take together.
    wanted: usize,
    failure: Option<Error>,
    closed: bool,
}

impl Inbox {
    /// Waits for at least one wake-up, and takes up to `max`.
    pub(super) async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
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

    fn take(&self, max: usize) -> Result<Option<Vec<Arrival>>, Error> {
        let mut state = self.state();
        if state.closed {
            return Err(Role::Backend.closed());
        }
        if let Some(failure) = state.failure.take() {
            return Err(failure);
        }
        state.drop_expired();
        if state.taken.is_empty() {
            return Ok(None);
        }
        let count = max.min(state.taken.len());
        Ok(Some(
            state.taken.drain(..count).map(|(arrival, _)| arrival).collect(),
        ))
    }

    fn want(&self, max: usize) -> Want<'_> {
        // Several receivers may each want everything there is.
        let max = max.min(MOST);
        self.state().wanted += max;
        self.wanted.notify_one();
        Want { inbox: self, max }
    }

    /// Returns how many wake-ups to take from Redis: as many as receivers wait for, but no more than [`MOST`], while
    /// none are here.
    pub(super) fn wanted(&self) -> usize {
        let mut state = self.state();
        state.drop_expired();
        if state.taken.is_empty() {
            state.wanted.min(MOST)
        } else {
            0
        }
    }

    /// Waits until receivers want more than before; if they did so meanwhile, that ends it at once.
    pub(super) async fn wants_more(&self) {
        self.wanted.notified().await;
    }

    /// Adds wake-ups that were taken on a lease that ends at `leased_until`.
    pub(super) fn put(&self, arrivals: Vec<Arrival>, leased_until: Instant) {
        let leased = arrivals.into_iter().map(|arrival| (arrival, leased_until));
        self.state().taken.extend(leased);
        self.arrived.notify_waiters();
    }

    /// Makes one receiver fail.
    pub(super) fn fail(&self, failure: Error) {
        self.state().failure = Some(failure);
        self.arrived.notify_waiters();
    }

    /// Makes every receiver fail, now and later.
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
        // All leases have one length, so the first taken ends first.
        let now = Instant::now();
        while self.taken.front().is_some_and(|(_, end)| *end <= now) {
            self.taken.pop_front();
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
    use crate::backend::Wake;

    fn arrival(ticket: u64) -> Arrival {
        let wake = Wake {
            id: TaskId::from_bytes([1; 16]),
            kind: "k".into(),
            version: 1,
        };
        Arrival { wake, ticket }
    }

    /// Waits until receivers want this many.
    async fn wanted(inbox: &Inbox, count: usize) {
        while inbox.wanted() != count {
            inbox.wants_more().await;
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
            wanted(&inbox, 10).await;
            inbox.put(vec![arrival(1), arrival(2)], in_a_minute());
        }
        assert_eq!(inbox.receive(1).await.expect("one"), [arrival(1)]);
        assert_eq!(inbox.receive(5).await.expect("the other"), [arrival(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_that_want_all_there_is_get_no_more_than_is_held_at_once() {
        let inbox = Inbox::default();
        let (first, second, ()) = tokio::join!(inbox.receive(usize::MAX), inbox.receive(usize::MAX), async {
            wanted(&inbox, MOST).await;
            inbox.put(vec![arrival(1)], in_a_minute());
            tokio::task::yield_now().await;
            wanted(&inbox, MOST).await;
            inbox.put(vec![arrival(2)], in_a_minute());
        });
        assert_eq!(first.expect("one").len() + second.expect("one").len(), 2);
        assert_eq!(inbox.wanted(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_taken_from_redis_for_receivers_that_have_left() {
        let inbox = Inbox::default();
        assert!(timeout(Duration::from_secs(1), inbox.receive(10)).await.is_err());
        assert_eq!(inbox.wanted(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_not_fetched_before_its_lease_ended_is_left_to_others() {
        let inbox = Inbox::default();
        inbox.put(vec![arrival(1)], in_a_minute());
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(timeout(Duration::from_secs(1), inbox.receive(10)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn receivers_share_what_arrives() {
        let inbox = Inbox::default();
        let (first, second, ()) = tokio::join!(inbox.receive(1), inbox.receive(1), async {
            wanted(&inbox, 2).await;
            inbox.put(vec![arrival(1), arrival(2)], in_a_minute());
        });
        let mut both = [first.expect("one"), second.expect("one")].concat();
        both.sort_by_key(|arrival| arrival.ticket);
        assert_eq!(both, [arrival(1), arrival(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_receiver_that_finds_nothing_left_keeps_waiting() {
        let inbox = Inbox::default();
        let (first, second, ()) = tokio::join!(inbox.receive(9), inbox.receive(9), async {
            wanted(&inbox, 18).await;
            inbox.put(vec![arrival(1)], in_a_minute());
            let one_waits = wanted(&inbox, 9);
            let one_waits = timeout(Duration::from_secs(1), one_waits).await;
            one_waits.expect("one still waits");
            inbox.put(vec![arrival(2)], in_a_minute());
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
            inbox.fail(Role::Backend.closed());
            assert!(receive.await.is_err());
        }
        {
            let mut receive = pin!(inbox.receive(10));
            assert!(timeout(Duration::from_secs(1), receive.as_mut()).await.is_err());
            inbox.fail(Role::Backend.closed());
        }
        assert!(timeout(Duration::from_secs(1), inbox.receive(10)).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_pending_and_later_receivers() {
        let inbox = Inbox::default();
        let (received, ()) = tokio::join!(inbox.receive(1), async {
            wanted(&inbox, 1).await;
            inbox.close();
        });
        assert!(received.is_err());
        assert!(inbox.receive(1).await.is_err());
    }
}
