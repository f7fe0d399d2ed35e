//! When to look at one shard.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::backoff::{Backoff, jittered};

/// A shard, as far as this process looks at it.
#[derive(Debug)]
pub(super) struct Watch {
    is_mine: bool,
    is_on: bool,
    /// When to look next. None: another process watches it.
    next: Option<Instant>,
    /// What was told during a look may be missing from its answer.
    told: Option<Instant>,
    backoff: Backoff,
}

impl Watch {
    /// Of a shard that nobody is known to watch.
    pub(super) fn new() -> Self {
        Self {
            is_mine: false,
            is_on: false,
            next: None,
            told: None,
            backoff: Backoff::CALLS,
        }
    }

    /// Whether this process is the one that watches the shard.
    pub(super) fn is_mine(&self) -> bool {
        self.is_mine
    }

    /// Whether a look is under way.
    pub(super) fn is_on(&self) -> bool {
        self.is_on
    }

    /// When to look, unless a look is under way.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next.filter(|_| !self.is_on)
    }

    /// Whether the shard is this process' to watch is known anew.
    pub(super) fn assign(&mut self, is_mine: bool, now: Instant) {
        if is_mine && !self.is_mine {
            self.look_at(now);
        }
        if self.is_mine && !is_mine {
            self.next = None;
        }
        self.is_mine = is_mine;
    }

    /// Something may be due at this time, or before.
    pub(super) fn look_at(&mut self, at: Instant) {
        let next = if self.is_on {
            &mut self.told
        } else {
            &mut self.next
        };
        *next = Some(next.map_or(at, |next| next.min(at)));
    }

    /// A look begins.
    pub(super) fn begin(&mut self) {
        self.is_on = true;
        self.told = None;
    }

    /// A look has ended: nothing else is due for so long.
    pub(super) fn looked(&mut self, now: Instant, wait: Duration, longest: Duration) {
        self.is_on = false;
        self.backoff.succeeded();
        // Whoever helped out leaves the shard to its watcher once nothing more is due.
        let goes_on = self.is_mine || wait.is_zero();
        self.next = goes_on.then(|| now + wait.min(longest));
        if let Some(told) = self.told.take() {
            self.look_at(told);
        }
    }

    /// A look has failed; gives how many did before it.
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
        watch.look_at(now + 5 * SECOND);
        watch.begin();
        assert_eq!(watch.next(), None);
        watch.look_at(now + SECOND);
        watch.looked(now, LONGEST, LONGEST);
        assert_eq!(watch.next(), Some(now + SECOND));
        // What was told before it, the look has seen.
        watch.begin();
        watch.looked(now, 3 * SECOND, LONGEST);
        assert_eq!(watch.next(), Some(now + 3 * SECOND));
    }

    #[test]
    fn who_helps_out_stays_as_long_as_more_is_due() {
        let now = Instant::now();
        let mut watch = Watch::new();
        watch.look_at(now);
        watch.begin();
        watch.looked(now, Duration::ZERO, LONGEST);
        assert_eq!(watch.next(), Some(now));
        watch.begin();
        watch.looked(now, SECOND, LONGEST);
        assert_eq!(watch.next(), None);
    }

    #[test]
    fn a_look_that_failed_is_repeated_by_who_watches() {
        let now = Instant::now();
        let mut watch = mine(now);
        watch.begin();
        assert_eq!(watch.failed(now), 0);
        assert!(watch.next().is_some_and(|next| next > now));
        watch.begin();
        assert_eq!(watch.failed(now), 1);
        watch.begin();
        watch.looked(now, SECOND, LONGEST);
        watch.begin();
        assert_eq!(watch.failed(now), 0, "it had gone well in between");

        let mut helping = Watch::new();
        helping.look_at(now);
        helping.begin();
        helping.failed(now);
        assert_eq!(helping.next(), None);
    }
}
