//! Who waits for due tasks of which kinds.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::{Notify, OwnedMutexGuard, oneshot};
use tokio::time::Instant;

use super::Claimed;
use super::offered::Offered;
use super::request::Request;
use crate::clock::Clock;
use crate::{Error, Kind, defaults};

/// Gathers those who wait for due tasks, by the kinds that they wait for.
#[derive(Debug, Default)]
pub(crate) struct Waiting {
    /// Each is there for as long as somebody is in it.
    rooms: Mutex<BTreeMap<BTreeSet<Kind>, Weak<Room>>>,
}

/// Those who wait for the same kinds: one at a time asks the store, on behalf of all.
#[derive(Debug, Default)]
pub(super) struct Room {
    /// Whose turn it is to ask; in the order in which they came.
    turn: Arc<tokio::sync::Mutex<()>>,
    /// Something may be due.
    told: Notify,
    known: Mutex<Known>,
}

/// The right to ask on behalf of all, until dropped.
pub(super) type Turn = OwnedMutexGuard<()>;

/// Who waits, and what the last who asked has found out.
#[derive(Debug, Default)]
struct Known {
    /// In the order in which they came. Who has gone is found out when the store is asked.
    line: Vec<(Arc<Request>, oneshot::Sender<Offered>)>,
    /// How often it was said that something may be due.
    told: u64,
    /// When to ask again; at once, if nothing says that nothing is due.
    ask_at: Option<Instant>,
    /// Why the last call failed.
    failed: Option<Error>,
}

/// A call that is under way.
pub(super) struct Asking {
    /// For how many tasks there is room.
    pub(super) places: usize,
    asked: Instant,
    told: u64,
}

impl Waiting {
    /// Something of this kind may be due; says whether anybody waits for it.
    pub(crate) fn may_be_due(&self, kind: &Kind) -> bool {
        let mut anybody = false;
        for (kinds, room) in self.rooms().iter() {
            if kinds.contains(kind)
                && let Some(room) = room.upgrade()
            {
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

    /// The room of those who wait for these kinds, for as long as it is held.
    pub(super) fn enter(&self, kinds: &BTreeSet<Kind>) -> Arc<Room> {
        let mut rooms = self.rooms();
        if let Some(room) = rooms.get(kinds).and_then(Weak::upgrade) {
            return room;
        }
        rooms.retain(|_, room| room.strong_count() > 0);
        let room = Arc::default();
        rooms.insert(kinds.clone(), Arc::downgrade(&room));
        room
    }

    fn rooms(&self) -> MutexGuard<'_, BTreeMap<BTreeSet<Kind>, Weak<Room>>> {
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

    /// Stands at the end of the line, until what gives the claims is dropped.
    pub(super) fn line_up(&self, request: &Arc<Request>) -> oneshot::Receiver<Offered> {
        let (offer, offered) = oneshot::channel();
        self.known().line.push((Arc::clone(request), offer));
        offered
    }

    pub(super) async fn turn(&self) -> Turn {
        Arc::clone(&self.turn).lock_owned().await
    }

    /// Waits until something may be due. Whose turn it is only.
    pub(super) async fn may_be_due(&self, clock: &Clock) {
        loop {
            let ask_at = self.known().ask_at;
            let Some(ask_at) = ask_at.filter(|&ask_at| ask_at > clock.instant()) else {
                return;
            };
            tokio::select! {
                biased;
                () = self.told.notified() => {}
                () = clock.sleep_until(ask_at) => return,
            }
        }
    }

    /// The store is about to be asked, for all who go with this request; none if none of them is in line any more.
    pub(super) fn ask(&self, request: &Request) -> Option<Asking> {
        let mut known = self.known();
        known.line.retain(|(_, offer)| !offer.is_closed());
        let sharing = known.line.iter().filter(|(other, _)| request.goes_with(other));
        let places: usize = sharing.map(|(other, _)| other.max).sum();
        if places == 0 {
            return None;
        }
        // If this call fails for good, nothing is known.
        known.ask_at = None;
        Some(Asking {
            places: places.min(defaults::BATCH),
            asked: request.claims.kernel.clock.instant(),
            told: known.told,
        })
    }

    /// The store has answered. If there is no more now, what was said since may be about what came after the look.
    pub(super) fn answered(&self, asking: &Asking, more: bool) {
        let mut known = self.known();
        known.failed = None;
        if !more && known.told == asking.told {
            known.ask_at = Some(asking.asked + defaults::CLAIM_EVERY);
        }
    }

    /// The store could not be asked.
    pub(super) fn failed(&self, error: Error, clock: &Clock) {
        let mut known = self.known();
        known.failed = Some(error);
        known.ask_at = Some(clock.instant() + defaults::CLAIM_EVERY);
    }

    /// Gives claims to those who go with this request, in the order in which they came; gives those that nobody is there for.
    pub(super) fn hand_out(&self, request: &Request, mut claimed: Vec<Claimed>) -> Vec<Claimed> {
        let mut known = self.known();
        while !claimed.is_empty() {
            let mut line = known.line.iter();
            let Some(first) = line.position(|(other, offer)| request.goes_with(other) && !offer.is_closed())
            else {
                break;
            };
            let (first, offer) = known.line.remove(first);
            let rest = claimed.split_off(first.max.min(claimed.len()));
            // Who has gone this very moment drops it, which gives it back.
            let _ = offer.send(Offered::new(&request.claims.kernel, claimed));
            claimed = rest;
        }
        claimed
    }

    /// What is given to one who has waited in vain.
    pub(super) fn nothing(&self) -> Result<Vec<Claimed>, Error> {
        match &self.known().failed {
            Some(error) => Err(error.once_more()),
            None => Ok(Vec::new()),
        }
    }
}
