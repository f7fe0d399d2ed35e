//! What is known of shards that need no look for now.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::shards::Shard;
use crate::store::table::{By, Range};
use crate::timestamp::duration;
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
pub(super) struct Idle(Mutex<HashMap<Shard, Known>>);

#[derive(Debug, Default)]
struct Known {
    /// None: it has to be looked at.
    firsts: Option<(Firsts, Instant)>,
    /// The latest time that its server said, and when.
    heard: Option<(Timestamp, Instant)>,
    /// Goes up whenever something earlier may have come.
    changes: u64,
}

impl Known {
    fn forget(&mut self) {
        self.firsts = None;
        self.changes += 1;
    }

    fn now(&self, at: Instant) -> Option<Timestamp> {
        let (now, then) = self.heard?;
        Some(now.after(at.saturating_duration_since(then)))
    }
}

impl Idle {
    /// The time by the clock of a shard's server, if none of these ranges has a row there. What was said longer ago than
    /// `believed` is not believed.
    pub(super) fn has_none(&self, shard: Shard, ranges: &[Range], believed: Duration) -> Option<Timestamp> {
        let all = self.shards();
        let (known, at) = (all.get(&shard)?, Instant::now());
        let now = known.now(at)?;
        let (firsts, _) = known
            .firsts
            .filter(|(_, then)| at.saturating_duration_since(*then) < believed)?;
        let is_empty = |range: &Range| {
            let sort = Sort::of(range)?;
            let until = range.within.map_or(Timestamp::MAX, |within| now.after(within));
            Some(firsts[sort as usize].is_none_or(|first| first > until))
        };
        ranges
            .iter()
            .all(|range| is_empty(range).unwrap_or(false))
            .then_some(now)
    }

    /// A look at a shard begins; what comes earlier meanwhile is told apart by what this gives.
    pub(super) fn looking(&self, shard: Shard) -> u64 {
        self.shards().entry(shard).or_default().changes
    }

    /// A look has found this.
    pub(super) fn looked(&self, shard: Shard, since: u64, firsts: Firsts) {
        let mut all = self.shards();
        let known = all.entry(shard).or_default();
        if known.changes == since {
            known.firsts = Some((firsts, Instant::now()));
        }
    }

    /// Something was written to a shard that needs a look then.
    pub(super) fn written(&self, shard: Shard, sort: Sort, time: Timestamp) {
        if let Some(known) = self.shards().get_mut(&shard) {
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
        let mut all = self.shards();
        let known = all.entry(shard).or_default();
        let apart = known
            .now(at)
            .map(|expected| duration(now.millis_since(expected).saturating_abs()));
        if apart.is_some_and(|apart| apart > JUMP) {
            known.forget();
        }
        known.heard = Some((now, at));
    }

    /// Nothing is known of a shard any more.
    pub(super) fn forget(&self, shard: Shard) {
        self.shards().entry(shard).or_default().forget();
    }

    /// Nothing is known any more: something may have been missed.
    pub(super) fn forget_all(&self) {
        self.shards().values_mut().for_each(Known::forget);
    }

    /// A write to a shard begins: the shard is asked if its answer does not come.
    pub(super) fn writing(&self, shard: Shard) -> Writing<'_> {
        Writing {
            idle: self,
            shard,
            is_answered: false,
        }
    }

    fn shards(&self) -> MutexGuard<'_, HashMap<Shard, Known>> {
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
