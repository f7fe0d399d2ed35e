//! Which shards need no look for now.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::answer::Soon;
use super::shards::Shard;
use crate::clock::instant_after;
use crate::timestamp::duration;
use crate::{Timestamp, defaults};

/// By how much clocks of servers, and answers, may part without anything being made of it.
const JUMP: Duration = Duration::from_secs(5);

/// Knows of each shard when it next has something to sweep or to remove, so that nobody asks before.
///
/// A shard said so itself when it was last looked at. What comes earlier since then is told by this process' own writes
/// and by the messages of others. A write whose answer is lost may have come earlier than anything: after it, the shard is
/// asked.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    shards: HashMap<Shard, Rest>,
    /// The latest time that a server said, and when.
    last: Option<(Timestamp, Instant)>,
}

/// Until when a shard needs no look.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    /// None: it has to be looked at now.
    sweep: Option<Instant>,
    purge: Option<Instant>,
    /// How far ahead was looked.
    ahead: Duration,
    /// The latest time that its server said, and when.
    heard: Option<(Timestamp, Instant)>,
    /// Goes up whenever something earlier has come.
    changes: u64,
}

impl Quiet {
    /// The time by the clock of the servers, carried on from what one of them said last; none if a shard of `shards` needs
    /// a look for a sweep that looks so far ahead.
    pub(super) fn swept(
        &self,
        shards: impl Iterator<Item = Shard>,
        ahead: Option<Duration>,
    ) -> Result<Timestamp, Vec<Shard>> {
        let known = self.known();
        let at = Instant::now();
        let needs_look = |shard: &Shard| {
            known.shards.get(shard).is_none_or(|rest| {
                rest.sweep.is_none_or(|until| until <= at) || ahead.is_some_and(|ahead| ahead != rest.ahead)
            })
        };
        let loud: Vec<_> = shards.filter(needs_look).collect();
        match known.last {
            Some((now, then)) if loud.is_empty() => Ok(now.after(at.saturating_duration_since(then))),
            _ => Err(loud),
        }
    }

    /// Those that have something to remove.
    pub(super) fn to_purge(&self, shards: impl Iterator<Item = Shard>) -> Vec<Shard> {
        let known = self.known();
        let at = Instant::now();
        let needs_look = |shard: &Shard| {
            let rest = known.shards.get(shard);
            rest.and_then(|rest| rest.purge).is_none_or(|until| until <= at)
        };
        shards.filter(needs_look).collect()
    }

    /// A look at a shard begins; what comes earlier meanwhile is told apart by what this gives.
    pub(super) fn looking(&self, shard: Shard) -> u64 {
        self.known().shards.entry(shard).or_default().changes
    }

    /// A sweep has looked at a shard, which has nothing for so long.
    pub(super) fn looked(&self, shard: Shard, since: u64, pause: Duration, ahead: Option<Duration>) {
        let mut known = self.known();
        let rest = known.shards.entry(shard).or_default();
        let until = instant_after(Instant::now(), pause);
        if rest.changes == since {
            rest.sweep = Some(until);
            rest.ahead = ahead.unwrap_or_default();
        }
    }

    /// The same for removing.
    pub(super) fn looked_for_past(&self, shard: Shard, since: u64, pause: Duration) {
        let mut known = self.known();
        let rest = known.shards.entry(shard).or_default();
        let until = instant_after(Instant::now(), pause);
        if rest.changes == since {
            rest.purge = Some(until);
        }
    }

    /// Something has been written to a shard.
    pub(super) fn written(&self, shard: Shard, soon: Soon) {
        let due = soon.due.map(|due| due.saturating_sub(self.ahead_of(shard)));
        let sweep = [soon.wake, due].into_iter().flatten().min();
        let mut known = self.known();
        // One that nothing is known of is asked anyway.
        let Some(rest) = known.shards.get_mut(&shard) else {
            return;
        };
        let at = Instant::now();
        let earlier =
            |rest: Option<Instant>, pause: Duration| rest.map(|until| until.min(instant_after(at, pause)));
        if let Some(pause) = sweep {
            rest.changes += 1;
            rest.sweep = earlier(rest.sweep, pause);
        }
        if let Some(pause) = soon.purge {
            rest.changes += 1;
            rest.purge = earlier(rest.purge, pause);
        }
    }

    fn ahead_of(&self, shard: Shard) -> Duration {
        let ahead = self.known().shards.get(&shard).map(|rest| rest.ahead);
        ahead.unwrap_or(defaults::LOOK_AHEAD)
    }

    /// The server of a shard has said its time. If its clock has jumped, nobody knows when the shard needs a look.
    pub(super) fn heard(&self, shard: Shard, now: Timestamp) {
        let at = Instant::now();
        let mut known = self.known();
        known.last = Some((now, at));
        let before = known.shards.entry(shard).or_default().heard.replace((now, at));
        let has_jumped = before.is_some_and(|(then, since)| {
            let expected = then.after(at.saturating_duration_since(since));
            duration(now.millis_since(expected).saturating_abs()) > JUMP
        });
        drop(known);
        if has_jumped {
            self.forget(shard);
        }
    }

    /// Nothing is known of a shard any more.
    pub(super) fn forget(&self, shard: Shard) {
        if let Some(rest) = self.known().shards.get_mut(&shard) {
            (rest.sweep, rest.purge) = (None, None);
            rest.changes += 1;
        }
    }

    /// Nothing is known any more: something may have been missed.
    pub(super) fn forget_all(&self) {
        for rest in self.known().shards.values_mut() {
            (rest.sweep, rest.purge) = (None, None);
            rest.changes += 1;
        }
    }

    /// A write to a shard begins: the shard is asked if its answer does not come.
    pub(super) fn writing(&self, shard: Shard) -> Writing<'_> {
        Writing {
            quiet: self,
            shard,
            is_answered: false,
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A write that was sent.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    quiet: &'a Quiet,
    shard: Shard,
    is_answered: bool,
}

impl Writing<'_> {
    pub(super) fn answered(mut self, soon: Soon) {
        self.is_answered = true;
        self.quiet.written(self.shard, soon);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.quiet.forget(self.shard);
        }
    }
}
