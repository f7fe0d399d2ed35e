//! What is known of shards that need no look for now.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::shards::Shard;
use crate::store::table::{By, Range};
use crate::task::timestamp::duration;
use crate::{State, Timestamp};

/// By how much clocks of servers, and answers, may part without anything being made of it.
const JUMP: Duration = Duration::from_secs(5);

/// Rows of every kind that are looked for by one of their times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    /// Scheduled ones, by their `wake_at`.
    Waking,
    /// Running ones, by when their leases end.
    Leased,
    /// Scheduled ones, by when they are due.
    Due,
    /// Those that are done or cancelled, by until when they are kept.
    Over,
}

impl Sort {
    /// What a range looks for; none if that is not known.
    pub(super) fn of(range: &Range) -> Option<Self> {
        match (range.by, range.state) {
            _ if range.kind.is_some() => None,
            (By::Wake, State::Scheduled) => Some(Self::Waking),
            (By::Wake, State::Running) => Some(Self::Leased),
            (By::Due, State::Scheduled) => Some(Self::Due),
            (By::Wake, State::Done | State::Cancelled) => Some(Self::Over),
            _ => None,
        }
    }
}

/// Of each [`Sort`] the first time of its rows; none where there is no row.
pub(super) type Firsts = [Option<Timestamp>; 4];

/// Knows of each shard when it next has something to sweep or to remove, so that it is not asked before.
///
/// A shard said so itself when it was last looked at. What comes earlier since then is told by this process's own writes
/// and by the messages of others. A write whose answer is lost may have come earlier than anything: after it, the shard is
/// asked.
#[derive(Debug, Default)]
pub(super) struct Idle(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    shards: HashMap<Shard, Known>,
    /// The latest time that a server said, and when.
    last: Option<Heard>,
}

/// A time that a server has said, and when.
type Heard = (Timestamp, Instant);

/// That time some time later: not ahead of the server, so cut off.
fn carried_on((now, then): Heard, at: Instant) -> Timestamp {
    let passed = at.saturating_duration_since(then).as_millis();
    now.shifted(i64::try_from(passed).unwrap_or(i64::MAX))
}

#[derive(Debug, Default)]
struct Known {
    /// None: it has to be looked at.
    firsts: Option<(Firsts, Instant)>,
    /// The latest time that its server said.
    heard: Option<Heard>,
    /// Goes up whenever something earlier may have come.
    changes: u64,
}

impl Known {
    fn forget(&mut self) {
        self.firsts = None;
        self.changes += 1;
    }
}

impl Idle {
    /// The time by the clock of the servers, carried on from what one of them said last.
    pub(super) fn now(&self) -> Option<Timestamp> {
        self.all().last.map(|last| carried_on(last, Instant::now()))
    }

    /// Whether none of these ranges has a row in a shard. What was said longer ago than `believed` is not believed.
    pub(super) fn has_none(&self, shard: Shard, ranges: &[Range], believed: Duration) -> bool {
        let (all, at) = (self.all(), Instant::now());
        let known = all.shards.get(&shard);
        let Some((Some((firsts, then)), Some(heard))) = known.map(|known| (known.firsts, known.heard)) else {
            return false;
        };
        let is_empty = |range: &Range| {
            let now = carried_on(heard, at);
            let until = range.within.map_or(Timestamp::MAX, |within| now.after(within));
            let first = Sort::of(range).map(|sort| firsts[sort as usize]);
            first.is_some_and(|first| first.is_none_or(|first| first > until))
        };
        at.saturating_duration_since(then) < believed && ranges.iter().all(is_empty)
    }

    /// A look at a shard begins; what comes earlier meanwhile is told apart by what this gives.
    pub(super) fn looking(&self, shard: Shard) -> u64 {
        self.all().shards.entry(shard).or_default().changes
    }

    /// A look has found this.
    pub(super) fn looked(&self, shard: Shard, since: u64, firsts: Firsts) {
        let mut all = self.all();
        let known = all.shards.entry(shard).or_default();
        if known.changes == since {
            known.firsts = Some((firsts, Instant::now()));
        }
    }

    /// Something was written to a shard that needs a look then.
    pub(super) fn written(&self, shard: Shard, sort: Sort, time: Timestamp) {
        if let Some(known) = self.all().shards.get_mut(&shard) {
            known.changes += 1;
            if let Some((firsts, _)) = &mut known.firsts {
                let first = &mut firsts[sort as usize];
                *first = Some(first.map_or(time, |first| first.min(time)));
            }
        }
    }

    /// The server of a shard has said its time. If its clock has jumped, it is not known when the shard needs a look.
    pub(super) fn heard(&self, shard: Shard, now: Timestamp) {
        let at = Instant::now();
        let mut all = self.all();
        let known = all.shards.entry(shard).or_default();
        let before = known.heard.replace((now, at));
        let apart = before.map(|heard| duration(now.millis_since(carried_on(heard, at)).saturating_abs()));
        if apart.is_some_and(|apart| apart > JUMP) {
            known.forget();
        }
        all.last = Some((now, at));
    }

    /// Nothing is known of a shard any more.
    pub(super) fn forget(&self, shard: Shard) {
        self.all().shards.entry(shard).or_default().forget();
    }

    /// Nothing is known any more: something may have been missed.
    pub(super) fn forget_all(&self) {
        self.all().shards.values_mut().for_each(Known::forget);
    }

    /// A write to a shard begins: the shard is asked if its answer does not come.
    pub(super) fn writing(&self, shard: Shard) -> Writing<'_> {
        Writing {
            idle: self,
            shard,
            is_answered: false,
        }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write that was sent.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    idle: &'a Idle,
    shard: Shard,
    is_answered: bool,
}

impl Writing<'_> {
    pub(super) fn answered(mut self) {
        self.is_answered = true;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.idle.forget(self.shard);
        }
    }
}
