//! What is kept of the tasks of a kind, where that differs from what is kept of others.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use super::{Claim, History};
use crate::Kind;

/// What is kept of the tasks of a kind: what is noted of them, and for how long they stay when they have ended. What it does
/// not say is as for all others.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::store::{History, Keep, MemoryStore};
/// use delayline::{Kind, Scheduler};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// const DAY: Duration = Duration::from_secs(24 * 3_600);
///
/// let scheduler = Scheduler::new(MemoryStore::new());
/// let charges = Keep::new().history(History::All).ended(90 * DAY).dead(365 * DAY);
/// scheduler.keep([(Kind::from("order.charge"), charges)])?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    pub(crate) history: Option<History>,
    ended: Option<Duration>,
    dead: Option<Duration>,
}

impl Keep {
    /// Makes one by which a kind is kept as all others are.
    pub const fn new() -> Self {
        Self {
            history: None,
            ended: None,
            dead: None,
        }
    }

    /// What is noted of them, in the place of [`SchedulerBuilder::history`](crate::SchedulerBuilder::history).
    #[must_use]
    pub const fn history(mut self, history: History) -> Self {
        self.history = Some(history);
        self
    }

    /// For how long those are kept that are done or cancelled from now on, in the place of the store's `keep_history`.
    #[must_use]
    pub const fn ended(mut self, time: Duration) -> Self {
        self.ended = Some(time);
        self
    }

    /// For how long those are kept that are dead from now on; else until an operator redrives or dismisses them.
    #[must_use]
    pub const fn dead(mut self, time: Duration) -> Self {
        self.dead = Some(time);
        self
    }
}

/// For how long the rows of a kind stay that have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stay {
    /// Of those that are done or cancelled.
    pub(super) ended: Duration,
    /// Of those that are dead; none: until an operator acts.
    pub(super) dead: Option<Duration>,
}

/// For how long rows stay, of each kind.
#[derive(Debug)]
pub(super) struct Stays {
    /// Of all that nothing else is said of.
    pub(super) usual: Duration,
    kinds: RwLock<Arc<BTreeMap<Kind, Keep>>>,
}

impl Stays {
    pub(super) fn new(usual: Duration) -> Self {
        Self {
            usual,
            kinds: RwLock::default(),
        }
    }

    pub(super) fn set(&self, kinds: &Arc<BTreeMap<Kind, Keep>>) {
        *self.kinds.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(kinds);
    }

    pub(super) fn of(&self, kind: &Kind) -> Stay {
        let kinds = self.kinds.read().unwrap_or_else(PoisonError::into_inner);
        let keep = kinds.get(kind).copied().unwrap_or_default();
        Stay {
            ended: keep.ended.unwrap_or(self.usual),
            dead: keep.dead,
        }
    }
}

/// What is noted, of each kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histories {
    /// Of all that nothing else is said of.
    usual: History,
    /// Kinds with a setting of their own.
    kinds: Arc<BTreeMap<Kind, History>>,
}

impl From<History> for Histories {
    /// The same of every kind.
    fn from(usual: History) -> Self {
        Self {
            usual,
            kinds: Arc::default(),
        }
    }
}

impl Histories {
    /// The same, but for these kinds.
    pub(crate) fn but(&self, kinds: &BTreeMap<Kind, Keep>) -> Self {
        let kinds = kinds
            .iter()
            .filter_map(|(kind, keep)| Some((kind.clone(), keep.history?)))
            .filter(|(_, history)| *history != self.usual);
        Self {
            usual: self.usual,
            kinds: Arc::new(kinds.collect()),
        }
    }

    /// What is noted of a kind.
    pub fn of(&self, kind: &Kind) -> History {
        self.kinds.get(kind).copied().unwrap_or(self.usual)
    }

    /// What is noted of a kind; where that is not known, of all that nothing else is said of.
    pub(crate) fn of_perhaps(&self, kind: Option<&Kind>) -> History {
        kind.map_or(self.usual, |kind| self.of(kind))
    }

    /// Whether it is the same of every kind.
    pub(crate) fn are_alike(&self) -> bool {
        self.kinds.is_empty()
    }
}

impl Claim {
    /// Those kinds that it has room for whose claims are noted, and the others; none, if there is only one sort.
    pub(super) fn split(&self) -> Option<(Self, Self)> {
        if self.history.are_alike() {
            return None;
        }
        let rooms = self.room.iter().filter(|(_, room)| **room > 0);
        let rooms = rooms.map(|(kind, room)| (kind.clone(), *room));
        let (noted, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            rooms.partition(|(kind, _)| self.history.of(kind) == History::All);
        let of = |room| Self { room, ..self.clone() };
        (!noted.is_empty() && !others.is_empty()).then(|| (of(noted), of(others)))
    }
}
