//! Says how often, and for how long, rows are asked for again that others were quicker with, or keep locked.

use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::clock::Clock;

/// After which time a caller is told that a row was not to be had.
pub(super) const ENOUGH: Duration = Duration::from_secs(3);
/// For how long the first pause is at the most. Where a row is locked, each is longer by it than the one before.
const PAUSE: Duration = Duration::from_millis(25);
/// For how long a pause is at the most.
const LONGEST: Duration = Duration::from_millis(250);

/// How often a worker's call asks for rows again that others have locked, before they are left for later.
pub(super) const LOCKED_TRIES: usize = 3;
/// How often a worker's call decides of rows, the first time included: each time what they are has nearly always changed.
pub(super) const TURNS: usize = 10;
/// How often one call looks for rows, the first time included, as some of those that were found cannot be read.
pub(super) const UNREADABLE_TRIES: usize = 10;

/// Lets calls that lost to a quicker one decide again one at a time. Otherwise one of them wins each turn, and all others
/// have read the same rows in vain.
pub(super) type Queue = Mutex<()>;

/// How often a call has asked again, and until when it will.
#[derive(Debug)]
pub(super) struct RetryWindow<'c> {
    clock: &'c Clock,
    queue: &'c Queue,
    /// While it is the one whose turn it is.
    turn: Option<MutexGuard<'c, ()>>,
    until: Instant,
    turns: u32,
}

impl<'c> RetryWindow<'c> {
    pub(super) fn new(clock: &'c Clock, queue: &'c Queue) -> Self {
        Self {
            clock,
            queue,
            turn: None,
            until: clock.instant() + ENOUGH,
            turns: 0,
        }
    }

    /// Whether rows that were lost are to be asked for again by a call that waits for no other: once, unless it is the turn of
    /// another.
    pub(super) fn takes_free_turn(&mut self) -> bool {
        self.turns += 1;
        self.turn = self.queue.try_lock().ok().filter(|_| self.turns == 1);
        self.turn.is_some()
    }

    /// Pauses before rows are asked for again, and says whether they are to be. A row that is only lost is first read again
    /// as soon as it is this call's turn.
    pub(super) async fn pause(&mut self, is_locked: bool) -> bool {
        self.turns += 1;
        let left = self.until.saturating_duration_since(self.clock.instant());
        if is_locked {
            // The others may get on meanwhile.
            self.turn = None;
        } else if self.turn.is_none() {
            self.turn = self.clock.timeout(left, self.queue.lock()).await;
            return self.turn.is_some();
        }
        if left.is_zero() {
            return false;
        }
        // A random while, so that two calls that want the same rows do not ask in step.
        let longest = match is_locked {
            true => LONGEST.min(PAUSE * self.turns),
            false => PAUSE,
        };
        let millis = u64::try_from(longest.as_millis()).unwrap_or(0);
        let least = if is_locked { millis / 2 } else { 0 };
        let pause = least + 1 + self.clock.random_below(millis - least);
        self.clock.pause(Duration::from_millis(pause)).await;
        true
    }
}

/// A pause of a worker, whose rows others have locked for the time of a statement: which nearly always is short.
pub(super) async fn moment(clock: &Clock) {
    let millis = 1 + clock.random_below(6);
    clock.pause(Duration::from_millis(millis)).await;
}
