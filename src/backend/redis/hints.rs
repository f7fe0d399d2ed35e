//! Collects the pub/sub messages that wake sleeping receivers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::shards::Shard;
use crate::redis::MessageListener;

/// How many hints about shards are kept. There are no more shards; others are not ours.
const MOST: usize = 1_024;

/// The hints since they were last taken.
#[derive(Debug, Default)]
pub(super) struct Hints {
    hints: Mutex<HintSet>,
    changed: Notify,
    /// Whether messages come now.
    are_live: AtomicBool,
}

/// Hints, of which none may be relied on: messages get lost, and any client that may publish on the channel can send
/// some.
#[derive(Debug, Default)]
pub(super) struct HintSet {
    /// When something may be due in a shard, if that is earlier than was known before.
    pub(super) due: BTreeMap<Shard, Instant>,
    /// The shards in which more is due than one receiver took.
    pub(super) more: BTreeSet<Shard>,
    /// The set of receiving processes has changed.
    pub(super) members: bool,
    /// Messages may have been missed.
    pub(super) missed: bool,
}

impl MessageListener for Hints {
    fn message(&self, text: &[u8]) {
        let mut words = std::str::from_utf8(text).unwrap_or_default().split(' ');
        let what = words.next().unwrap_or_default();
        let mut number = || words.next()?.parse::<u64>().ok();
        let shard = |number: Option<u64>| Some(Shard(u16::try_from(number?).ok()?));
        match what {
            "members" => self.add(|hints| hints.members = true),
            "more" => {
                if let Some(shard) = shard(number()) {
                    self.add(|hints| {
                        if hints.more.len() < MOST {
                            hints.more.insert(shard);
                        }
                    });
                }
            }
            "due" => {
                let shard = shard(number());
                let at = number().and_then(|ms| Instant::now().checked_add(Duration::from_millis(ms)));
                if let (Some(shard), Some(at)) = (shard, at) {
                    self.add(|hints| {
                        if hints.due.len() < MOST {
                            let due = hints.due.entry(shard).or_insert(at);
                            *due = at.min(*due);
                        }
                    });
                }
            }
            _ => {}
        }
    }

    fn begins(&self) {
        self.are_live.store(true, Ordering::Relaxed);
        self.add(|hints| hints.missed = true);
    }

    fn ends(&self) {
        self.are_live.store(false, Ordering::Relaxed);
        // From now on sleeping receivers have to poll.
        self.add(|hints| hints.missed = true);
    }
}

impl Hints {
    /// Whether messages come now.
    pub(super) fn are_live(&self) -> bool {
        self.are_live.load(Ordering::Relaxed)
    }

    fn add(&self, add: impl FnOnce(&mut HintSet)) {
        add(&mut self.hints());
        self.changed.notify_one();
    }

    /// Returns the hints since this was last called.
    pub(super) fn take(&self) -> HintSet {
        std::mem::take(&mut self.hints())
    }

    /// Waits for a hint; one that came since `take` was last called ends it at once.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn hints(&self) -> MutexGuard<'_, HintSet> {
        self.hints.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn of_several_hints_for_a_shard_the_earliest_counts() {
        let hints = Hints::default();
        hints.message(b"due 7 50");
        hints.message(b"due 7 20");
        hints.message(b"due 7 90");
        hints.changed().await;
        let taken = hints.take();
        let at = Instant::now() + Duration::from_millis(20);
        assert_eq!(taken.due, BTreeMap::from([(Shard(7), at)]));
        assert!(hints.take().due.is_empty(), "each hint is returned once");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_no_message_of_ours_is_nothing() {
        let hints = Hints::default();
        for text in [
            &b""[..],
            b"due",
            b"due 7",
            b"due 7 x",
            b"due 70000 5",
            b"due 7 99999999999999999999",
            b"more",
            b"more x",
            b"\xFF\xFF",
        ] {
            hints.message(text);
            let HintSet {
                due,
                more,
                members,
                missed,
            } = hints.take();
            assert!(
                due.is_empty() && more.is_empty() && !members && !missed,
                "{text:?}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_of_hints_takes_no_memory() {
        let hints = Hints::default();
        for number in 0..10_000 {
            hints.message(format!("due {number} 5").as_bytes());
            hints.message(format!("more {number}").as_bytes());
        }
        let taken = hints.take();
        assert_eq!((taken.due.len(), taken.more.len()), (MOST, MOST));
    }
}
