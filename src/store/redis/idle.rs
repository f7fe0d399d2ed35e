//! Caches when shards next have something due, so that those that have nothing are not asked.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::shards::Shard;
use crate::Timestamp;
use crate::clock::{Clock, Moment};
use crate::task::timestamp::duration;

/// By how much clocks of servers, and answers, may part without anything being made of it.
const JUMP: Duration = Duration::from_secs(5);

/// Knows of each shard, by the names of its indexes, the first time in each: what its server has said of them last. Whatever is
/// written to a shard, by this process or by others, makes that unknown, and the shard is asked again.
#[derive(Debug)]
pub(super) struct Idle {
    clock: Clock,
    shards: Mutex<HashMap<Shard, FirstTimes>>,
}

#[derive(Debug, Default)]
struct FirstTimes {
    firsts: BTreeMap<String, First>,
    /// Goes up whenever the shard has been written to.
    writes: u64,
}

/// The first time in an index, if there is any; by the clock of the server, which said `now` at that moment.
#[derive(Clone, Copy, Debug)]
struct First {
    first: Option<Timestamp>,
    now: Timestamp,
    at: Moment,
}

impl First {
    /// The time by the clock of the server: not ahead of it, so cut off.
    fn now(&self, moment: &Moment) -> Timestamp {
        let passed = self.at.steadily_until(moment).as_millis();
        self.now.shifted(i64::try_from(passed).unwrap_or(i64::MAX))
    }
}

impl Idle {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            shards: Mutex::default(),
        }
    }

    /// The time by the clock of a shard's server if none of these indexes has a row up to so long from then, or at any time. What
    /// was said longer ago than `believed` is not believed.
    pub(super) fn quiet<'a>(
        &self,
        shard: Shard,
        mut indexes: impl Iterator<Item = (&'a str, Option<Duration>)>,
        believed: Duration,
    ) -> Option<Timestamp> {
        let (all, moment) = (self.all(), self.clock.moment());
        let known = &all.get(&shard)?.firsts;
        indexes.try_fold(Timestamp::MIN, |now, (index, within)| {
            let first = known.get(index)?;
            if first.at.until(&moment) >= believed {
                return None;
            }
            let until = within.map_or(Timestamp::MAX, |within| first.now(&moment).after(within));
            let is_quiet = first.first.is_none_or(|first| first > until);
            is_quiet.then(|| now.max(first.now(&moment)))
        })
    }

    /// A shard of which an index had a row when its server was asked last.
    pub(super) fn with_row(&self, index: &str) -> Option<Shard> {
        let all = self.all();
        let has_row = |known: &FirstTimes| known.firsts.get(index).is_some_and(|first| first.first.is_some());
        all.iter()
            .find_map(|(shard, known)| has_row(known).then_some(*shard))
    }

    /// How often a shard has been written to: for [`keep`](Self::keep).
    pub(super) fn writes(&self, shard: Shard) -> u64 {
        self.all().entry(shard).or_default().writes
    }

    /// Keeps what a server has said at `now`, unless its shard was written to since it was asked.
    pub(super) fn keep(
        &self,
        shard: Shard,
        writes: u64,
        now: Timestamp,
        firsts: impl Iterator<Item = (String, Option<Timestamp>)>,
    ) {
        let (mut all, at) = (self.all(), self.clock.moment());
        let known = all.entry(shard).or_default();
        if known.writes == writes {
            let first = |(index, first)| (index, First { first, now, at });
            known.firsts.extend(firsts.map(first));
        }
    }

    /// The server of a shard has said its time. If its clock has jumped, it is not known when the shard has something due.
    pub(super) fn heard(&self, shard: Shard, now: Timestamp) {
        let mut all = self.all();
        let Some(known) = all.get_mut(&shard) else {
            return;
        };
        let moment = self.clock.moment();
        let has_jumped =
            |first: &First| duration(now.millis_since(first.now(&moment)).saturating_abs()) > JUMP;
        known.firsts.retain(|_, first| !has_jumped(first));
    }

    /// A shard has been written to, or may have been.
    pub(super) fn forget(&self, shard: Shard) {
        self.all().entry(shard).or_default().forget();
    }

    /// Any shard may have been written to.
    pub(super) fn forget_all(&self) {
        self.all().values_mut().for_each(FirstTimes::forget);
    }

    /// Forgets a shard when the write is over that this is kept for, also one that is cancelled.
    pub(super) fn writing(&self, shard: Shard) -> Writing<'_> {
        Writing { idle: self, shard }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Shard, FirstTimes>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FirstTimes {
    fn forget(&mut self) {
        self.firsts.clear();
        self.writes += 1;
    }
}

/// A write that was sent.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    idle: &'a Idle,
    shard: Shard,
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.idle.forget(self.shard);
    }
}
