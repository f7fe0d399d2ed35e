//! Who waits for due tasks of which kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::Instant;

use super::Claimed;
use crate::clock::Clock;
use crate::{Error, Kind, defaults};

/// Gathers those who wait for due tasks, by the kinds that they wait for.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    rooms: Mutex<BTreeMap<BTreeSet<Kind>, Arc<Room>>>,
}

/// Those who wait for the same kinds: one at a time asks the store, on behalf of all.
#[derive(Debug, Default)]
struct Room {
    /// Whose turn it is to ask; in the order in which they came.
    turn: tokio::sync::Mutex<()>,
    /// Something may be due.
    told: Notify,
    known: Mutex<Known>,
}

/// What the last who asked has found out.
#[derive(Debug, Default)]
struct Known {
    /// How often it was said that something may be due.
    told: u64,
    /// When to ask again; at once, if nothing says that nothing is due.
    ask_at: Option<Instant>,
    /// Why the last call failed.
    failed: Option<Error>,
}

impl Waiting {
    /// Something of this kind may be due; says whether anybody waits for it.
    pub(crate) fn may_be_due(&self, kind: &Kind) -> bool {
        let mut anybody = false;
        for (kinds, room) in self.rooms().iter() {
            if kinds.contains(kind) {
                anybody = true;
                room.tell();
            }
        }
        anybody
    }

    /// Something of each of these kinds may be due.
    pub(crate) fn tell<'a>(&self, kinds: impl IntoIterator<Item = &'a Kind>) {
        let kinds: BTreeSet<_> = kinds.into_iter().collect();
        for kind in kinds {
            self.may_be_due(kind);
        }
    }

    /// Waits with the others for these kinds, until dropped.
    pub(super) fn enter<'a>(&'a self, kinds: &'a BTreeSet<Kind>) -> Entered<'a> {
        let room = Arc::clone(self.rooms().entry(kinds.clone()).or_default());
        Entered {
            waiting: self,
            kinds,
            room,
        }
    }

    fn rooms(&self) -> MutexGuard<'_, BTreeMap<BTreeSet<Kind>, Arc<Room>>> {
        self.rooms.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Room {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let mut known = self.known();
        known.told += 1;
        known.ask_at = None;
        self.told.notify_one();
    }
}

/// One who waits.
pub(super) struct Entered<'a> {
    waiting: &'a Waiting,
    kinds: &'a BTreeSet<Kind>,
    room: Arc<Room>,
}

/// A call that is under way.
pub(super) struct Asking {
    asked: Instant,
    told: u64,
}

impl Entered<'_> {
    /// The right to ask on behalf of all, until dropped.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.room.turn.lock().await
    }

    /// Waits until something may be due. Whose turn it is only.
    pub(super) async fn may_be_due(&self, clock: &Clock) {
        loop {
            let ask_at = self.room.known().ask_at;
            let Some(ask_at) = ask_at.filter(|&ask_at| ask_at > clock.instant()) else {
                return;
            };
            tokio::select! {
                biased;
                () = self.room.told.notified() => {}
                () = clock.sleep_until(ask_at) => return,
            }
        }
    }

    /// The store is about to be asked.
    pub(super) fn ask(&self, clock: &Clock) -> Asking {
        let mut known = self.room.known();
        // If this call is dropped, nothing is known.
        known.ask_at = None;
        Asking {
            asked: clock.instant(),
            told: known.told,
        }
    }

    /// Nothing was due; but what was said since may be about what came after the look.
    pub(super) fn found_nothing(&self, asking: &Asking) {
        let mut known = self.room.known();
        known.failed = None;
        if known.told == asking.told {
            known.ask_at = Some(asking.asked + defaults::CLAIM_EVERY);
        }
    }

    /// The store could not be asked.
    pub(super) fn failed(&self, error: Error, clock: &Clock) {
        let mut known = self.room.known();
        known.failed = Some(error);
        known.ask_at = Some(clock.instant() + defaults::CLAIM_EVERY);
    }

    /// What is given to one who has waited in vain.
    pub(super) fn nothing(&self) -> Result<Vec<Claimed>, Error> {
        match &self.room.known().failed {
            Some(error) => Err(error.once_more()),
            None => Ok(Vec::new()),
        }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        let mut rooms = self.waiting.rooms();
        // The map's and this one's: whoever enters does so under the lock.
        if Arc::strong_count(&self.room) == 2 {
            rooms.remove(self.kinds);
        }
    }
}
