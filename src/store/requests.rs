//! What workers ask a store for, and what it answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use super::Histories;
use crate::task::timestamp::millis;
use crate::task::wake::Wake;
use crate::{Key, Kind, Task, TaskId, Timestamp, defaults};

/// Asks for rows: says for which owner, for how long, and how many of which kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Written into `owner`; informational.
    pub owner: Arc<str>,
    /// `wake_at` of a claimed row is this long after now by the store's clock.
    pub lease: Duration,
    /// The kinds that the claimer handles, each with how many more of it the claimer can take.
    pub room: BTreeMap<Kind, usize>,
    /// How many bytes of payloads the claimer can take: a row is claimed only while those claimed before it by the same
    /// call have fewer in all. A store may count those that it left to others, too. Where the claims of some kinds are noted
    /// and those of others are not, it may serve one sort before the other, but must not always serve the same one first.
    pub bytes: usize,
    /// For which kinds claims and ended leases are recorded in the history. A [`Table`](super::table::Table) is given only
    /// claims of whose kinds all are recorded, or none.
    pub history: Histories,
}

/// What a sweep is to take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// How many rows of each kind and state at the most.
    pub limit: usize,
    /// By how much `wake_at` of a row moves on that is not due.
    pub retake: Duration,
    /// Whether to look ahead as well, and how far.
    pub ahead: Option<Ahead>,
}

/// How far to look ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Up to which time from now.
    pub within: Duration,
    /// How many rows at the most.
    pub limit: usize,
}

impl Ahead {
    /// How long ago the first rows have become due that a look ahead finds as well. They are not overdue yet, as their
    /// backend may have its usual lateness; but one that another process has just scheduled would wait for one sweep more.
    pub const SINCE: Duration = defaults::PRECISE_LATENESS;

    /// The earliest due time of the rows.
    pub(crate) fn from(now: Timestamp) -> Timestamp {
        now.shifted(-millis(Self::SINCE))
    }
}

/// A claim whose lease is to end later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// Which row.
    pub id: TaskId,
    /// The version by which it was claimed.
    pub version: u64,
    /// Whether its handler has started, or is about to: from then on the claim is an attempt, also if its worker dies.
    pub started: bool,
}

/// What came of a write that is guarded by the version of its row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guarded {
    /// The row was as expected, and is written.
    Done,
    /// The row is in another state, of another version, or gone.
    Lost,
    /// Not known: another transaction has the row locked, its server is out of reach or refuses it, or it cannot be read.
    /// Nothing was written unless an answer was lost; to be asked again.
    Blocked,
}

/// What [`Store::arrive`](super::Store::arrive) or [`Store::sweep`](super::Store::sweep) has claimed and found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PollResult {
    /// Claimed: state running, attempt + 1, not started, of the version by which the claim is now known.
    pub claimed: Vec<Task>,
    /// Valid but not due: a hop is to be recorded and sent.
    pub early: Vec<Pending>,
    /// Due and not claimed, for want of room or of a handler: how many of which kind.
    pub waiting: BTreeMap<Kind, usize>,
    /// Wake-ups that named a past version.
    pub stale: usize,
    /// Rows whose lease had ended.
    pub expired: usize,
    /// What comes next, for a sweep that was to look ahead: the earliest due first.
    pub ahead: Vec<Pending>,
}

impl PollResult {
    /// Leaves out of the look ahead what was claimed right after it.
    pub(crate) fn forget_claimed(&mut self) {
        let claimed: BTreeSet<_> = self.claimed.iter().map(|task| task.id).collect();
        self.ahead.retain(|row| !claimed.contains(&row.wake.id));
    }
}

/// A scheduled row that is not due yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pending {
    /// The row, at its version.
    pub wake: Wake,
    /// Its caller's own name for it, if any.
    pub key: Option<Key>,
    /// When it is due.
    pub due_at: Timestamp,
    /// When its caller wanted it to run: the due time before any retry or snooze.
    pub planned_at: Timestamp,
}

impl Pending {
    pub(crate) fn of(row: &Task) -> Self {
        Self {
            wake: Wake {
                id: row.id,
                kind: row.kind.clone(),
                version: row.version,
            },
            key: row.key.clone(),
            due_at: row.due_at,
            planned_at: row.planned_at,
        }
    }
}
