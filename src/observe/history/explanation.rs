//! Where a task stands.

use super::{Entry, Leg};
use crate::store::Paused;
use crate::{Task, Timestamp};

/// Where a task stands, what has happened to it, and what comes next; given by
/// [`Scheduler::explain`](crate::Scheduler::explain).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// When it was asked, by the store's clock.
    pub now: Timestamp,
    /// The task as it is.
    pub task: Task,
    /// The pause of its kind, if that is paused.
    pub paused: Option<Paused>,
    /// What has happened to it, the oldest first, as far as it was noted.
    pub history: Vec<Entry>,
    /// Whether there were older entries, which were dropped as there were too many.
    pub is_cut: bool,
    /// The wake-up that was sent last; none if the task is not scheduled, or if it is not known which way that goes.
    pub wake: Option<WakeUp>,
    /// The hops that follow `wake`, or from now on where that is not known, if each is punctual; the first 1,000. None if
    /// the task is not scheduled, or if its wake-up is at a backend that this process does not have.
    pub plan: Option<Vec<Leg>>,
    /// All of it in a few sentences.
    pub words: Vec<String>,
}

/// A wake-up, and the way that was chosen for it when its row was written. Whether the backend took it is not known: what it
/// refuses goes to the precise one, and what is lost is found when it counts as missed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct WakeUp {
    /// Where it was to go.
    pub leg: Leg,
    /// Since when, by the store's clock.
    pub since: Timestamp,
    /// When it arrives if it is punctual. It counts as missed at the task's [`wake_at`](Task::wake_at).
    pub arrives_at: Timestamp,
}

impl WakeUp {
    pub(crate) fn sent(leg: Leg, since: Timestamp) -> Self {
        let arrives_at = since.after(leg.delay);
        Self {
            leg,
            since,
            arrives_at,
        }
    }
}
