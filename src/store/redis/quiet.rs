//! Which slots need no look for now.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::answer::Soon;
use crate::clock::instant_after;
use crate::redis::Slot;
use crate::{Timestamp, defaults};

/// Knows of each slot when it next has something to sweep or to remove, so that nobody asks before.
///
/// A slot said so itself when it was last looked at. What comes earlier since then is told by this process' own writes
/// and by the messages of others. A write whose answer is lost may have come earlier than anything: after it, the slot is
/// asked.
#[derive(Debug, Default)]
pub(super) struct Quiet {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    slots: HashMap<Slot, Rest>,
    /// The latest time that a server said, and when.
    last: Option<(Timestamp, Instant)>,
}

/// Until when a slot needs no look.
#[derive(Clone, Copy, Debug, Default)]
struct Rest {
    /// None: it has to be looked at now.
    sweep: Option<Instant>,
    purge: Option<Instant>,
    /// How far ahead was looked.
    ahead: Duration,
    /// Goes up whenever something earlier has come.
    changes: u64,
}

impl Quiet {
    /// The time by the clock of the servers, carried on from what one of them said last; none if a slot of `slots` needs
    /// a look for a sweep that looks so far ahead.
    pub(super) fn swept(
        &self,
        slots: impl Iterator<Item = Slot>,
        ahead: Option<Duration>,
    ) -> Result<Timestamp, Vec<Slot>> {
        let known = self.known();
        let at = Instant::now();
        let needs_look = |slot: &Slot| {
            known.slots.get(slot).is_none_or(|rest| {
                rest.sweep.is_none_or(|until| until <= at) || ahead.is_some_and(|ahead| ahead != rest.ahead)
            })
        };
        let loud: Vec<_> = slots.filter(needs_look).collect();
        match known.last {
            Some((now, then)) if loud.is_empty() => Ok(now.after(at.saturating_duration_since(then))),
            _ => Err(loud),
        }
    }

    /// Those that have something to remove.
    pub(super) fn to_purge(&self, slots: impl Iterator<Item = Slot>) -> Vec<Slot> {
        let known = self.known();
        let at = Instant::now();
        let needs_look = |slot: &Slot| {
            let rest = known.slots.get(slot);
            rest.and_then(|rest| rest.purge).is_none_or(|until| until <= at)
        };
        slots.filter(needs_look).collect()
    }

    /// A look at a slot begins; what comes earlier meanwhile is told apart by what this gives.
    pub(super) fn looking(&self, slot: Slot) -> u64 {
        self.known().slots.entry(slot).or_default().changes
    }

    /// A sweep has looked at a slot, which has nothing for so long.
    pub(super) fn looked(&self, slot: Slot, since: u64, pause: Duration, ahead: Option<Duration>) {
        let mut known = self.known();
        let rest = known.slots.entry(slot).or_default();
        let until = instant_after(Instant::now(), pause);
        if rest.changes == since {
            rest.sweep = Some(until);
            rest.ahead = ahead.unwrap_or_default();
        }
    }

    /// The same for removing.
    pub(super) fn looked_for_past(&self, slot: Slot, since: u64, pause: Duration) {
        let mut known = self.known();
        let rest = known.slots.entry(slot).or_default();
        let until = instant_after(Instant::now(), pause);
        if rest.changes == since {
            rest.purge = Some(until);
        }
    }

    /// Something has been written to a slot.
    pub(super) fn written(&self, slot: Slot, soon: Soon) {
        let due = soon.due.map(|due| due.saturating_sub(self.ahead_of(slot)));
        let sweep = [soon.wake, due].into_iter().flatten().min();
        let mut known = self.known();
        // One that nothing is known of is asked anyway.
        let Some(rest) = known.slots.get_mut(&slot) else {
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

    fn ahead_of(&self, slot: Slot) -> Duration {
        let ahead = self.known().slots.get(&slot).map(|rest| rest.ahead);
        ahead.unwrap_or(defaults::LOOK_AHEAD)
    }

    /// A server has said its time.
    pub(super) fn heard(&self, now: Timestamp) {
        self.known().last = Some((now, Instant::now()));
    }

    /// Nothing is known of a slot any more.
    pub(super) fn forget(&self, slot: Slot) {
        if let Some(rest) = self.known().slots.get_mut(&slot) {
            (rest.sweep, rest.purge) = (None, None);
            rest.changes += 1;
        }
    }

    /// Nothing is known any more: something may have been missed.
    pub(super) fn forget_all(&self) {
        for rest in self.known().slots.values_mut() {
            (rest.sweep, rest.purge) = (None, None);
            rest.changes += 1;
        }
    }

    /// Forgets all slots but these.
    pub(super) fn keep(&self, is_kept: impl Fn(Slot) -> bool) {
        self.known().slots.retain(|slot, _| is_kept(*slot));
    }

    /// A write to a slot begins: the slot is asked if its answer does not come.
    pub(super) fn writing(&self, slot: Slot) -> Writing<'_> {
        Writing {
            quiet: self,
            slot,
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
    slot: Slot,
    is_answered: bool,
}

impl Writing<'_> {
    pub(super) fn answered(mut self, soon: Soon) {
        self.is_answered = true;
        self.quiet.written(self.slot, soon);
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        if !self.is_answered {
            self.quiet.forget(self.slot);
        }
    }
}
