//! Decides when to poll one shard.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::backoff::{Backoff, jittered};

/// The state of a shard in this process.
#[derive(Debug)]
pub(super) struct Watch {
    is_mine: bool,
    is_on: bool,
    /// When to poll next. None: another process watches it.
    next: Option<Instant>,
    /// A hint during a poll, which its answer may not include.
    hinted: Option<Instant>,
    backoff: Backoff,
}

impl Watch {
    /// A shard that no process is known to watch.
    pub(super) fn new() -> Self {
        Self {
            is_mine: false,
            is_on: false,
            next: None,
            hinted: None,
            backoff: Backoff::CALLS,
        }
    }

    /// Says whether this process watches the shard.
    pub(super) fn is_mine(&self) -> bool {
        self.is_mine
    }

    /// Says whether a poll is in flight.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// Returns when to poll, unless a poll is in flight.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next.filter(|_| !self.is_on)
    }

    /// Says whether the last poll has failed.
    pub(super) fn has_failed(&self) -> bool {
        self.backoff.failures() > 0
    }

    /// Orders shards that are to be polled: one whose node may hang comes last, then one that has waited for longer comes
    /// first.
    pub(super) fn urgency(&self) -> impl Ord + use<> {
        (self.has_failed(), self.next)
    }

    /// Sets whether this process watches the shard.
    pub(super) fn assign(&mut self, is_mine: bool, now: Instant) {
        if is_mine && !self.is_mine {
            self.poll_at(now);
        }
        if self.is_mine && !is_mine {
            self.next = None;
        }
        self.is_mine = is_mine;
    }

    /// Records that something may be due at this time, or before.
    pub(super) fn poll_at(&mut self, at: Instant) {
        let next = if self.is_on {
            &mut self.hinted
        } else {
            &mut self.next
        };
        *next = Some(next.map_or(at, |next| next.min(at)));
    }

    /// Records that a poll begins.
    pub(super) fn begin(&mut self) {
        self.is_on = true;
        self.hinted = None;
    }

    /// Records that a poll has ended: nothing else is due for so long.
    pub(super) fn polled(&mut self, now: Instant, wait: Duration, longest: Duration) {
        self.is_on = false;
        self.backoff.succeeded();
        // A process that helped out leaves the shard to its watcher once nothing more is due.
        let goes_on = self.is_mine || wait.is_zero();
        self.next = goes_on.then(|| now + wait.min(longest));
        if let Some(hinted) = self.hinted.take() {
            self.poll_at(hinted);
        }
    }

    /// Records that a poll has failed; returns how many did before it.
    pub(super) fn failed(&mut self, now: Instant) -> u32 {
        let failures = self.backoff.failures();
        self.is_on = false;
        let pause = jittered(self.backoff.failed(now));
        self.next = self.is_mine.then(|| now + pause);
        failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const LONGEST: Duration = Duration::from_secs(8);

    fn mine(now: Instant) -> Watch {
        let mut watch = Watch::new();
        watch.assign(true, now);
        watch
    }

    #[test]
    fn a_shard_that_becomes_mine_is_looked_at_at_once_and_one_that_was_is_left() {
        let now = Instant::now();
        let mut watch = mine(now);
        assert_eq!(watch.next(), Some(now));
        watch.assign(true, now + SECOND);
        assert_eq!(watch.next(), Some(now), "nothing is new");
        watch.assign(false, now);
        assert_eq!(watch.next(), None);
    }

    #[test]
    fn what_is_told_during_a_look_is_not_forgotten() {
        let now = Instant::now();
        let mut watch = mine(now);
        watch.poll_at(now + 5 * SECOND);
        watch.begin();
        assert_eq!(watch.next(), None);
        watch.poll_at(now + SECOND);
        watch.polled(now, LONGEST, LONGEST);
        assert_eq!(watch.next(), Some(now + SECOND));
        // The poll includes hints from before it.
        watch.begin();
        watch.polled(now, 3 * SECOND, LONGEST);
        assert_eq!(watch.next(), Some(now + 3 * SECOND));
    }

    #[test]
    fn a_helper_stays_as_long_as_more_is_due() {
        let now = Instant::now();
        let mut watch = Watch::new();
        watch.poll_at(now);
        watch.begin();
        watch.polled(now, Duration::ZERO, LONGEST);
        assert_eq!(watch.next(), Some(now));
        watch.begin();
        watch.polled(now, SECOND, LONGEST);
        assert_eq!(watch.next(), None);
    }

    #[test]
    fn a_look_that_failed_is_repeated_by_the_watcher() {
        let now = Instant::now();
        let mut watch = mine(now);
        watch.begin();
        assert_eq!(watch.failed(now), 0);
        assert!(watch.next().is_some_and(|next| next > now));
        watch.begin();
        assert_eq!(watch.failed(now), 1);
        watch.begin();
        watch.polled(now, SECOND, LONGEST);
        watch.begin();
        assert_eq!(watch.failed(now), 0, "it had gone well in between");

        let mut helping = Watch::new();
        helping.poll_at(now);
        helping.begin();
        helping.failed(now);
        assert_eq!(helping.next(), None);
    }

    #[test]
    fn a_shard_whose_node_may_hang_comes_after_those_that_answer_and_these_in_turns() {
        let now = Instant::now();
        let (mut hanging, mut early, mut late) = (mine(now), mine(now), mine(now));
        hanging.begin();
        hanging.failed(now);
        early.begin();
        early.polled(now, SECOND, LONGEST);
        late.begin();
        late.polled(now, 2 * SECOND, LONGEST);
        assert!(early.urgency() < late.urgency() && late.urgency() < hanging.urgency());
    }
}
