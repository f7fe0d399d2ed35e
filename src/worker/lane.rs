//! The tasks of one kind in one worker: how many there may be, which wait, which run.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::handler::{Finishing, Handler};
use crate::retry::Policy;
use crate::store::Ending;
use crate::store_time::Reading;
use crate::{Kind, Task, TaskId, Timestamp, WokenBy};

/// Holds the claims of one kind, within the kind's limits, and keeps order among them.
pub(crate) struct Lane {
    pub(crate) kind: Kind,
    pub(crate) policy: Policy,
    pub(crate) handler: Handler,
    state: Mutex<LaneState>,
    /// A claim came.
    changed: Notify,
}

#[derive(Default)]
struct LaneState {
    /// Places kept for claims that have been sent to the store.
    reserved: usize,
    claims: BTreeMap<TaskId, Held>,
    /// Those not started, the oldest claim first.
    queue: VecDeque<TaskId>,
    /// Whether the store may have due tasks for which there was no room.
    backlog: bool,
}

/// What is next in a lane.
pub(crate) enum Next {
    /// A claim whose lease holds.
    Start {
        task: Arc<Task>,
        woken_by: WokenBy,
        finishing: Finishing,
        /// The time by the store's clock, as far as is believed.
        store_now: Timestamp,
        /// It is this or later: by which nothing is too late that may be in time.
        store_earliest: Timestamp,
        lease_until: Instant,
    },
    /// A claim whose lease has ended; it is forgotten.
    Lost,
}

/// A claim that has ended.
pub(crate) struct Settled {
    pub(crate) lane: Arc<Lane>,
    pub(crate) task: Arc<Task>,
    pub(crate) ending: Ending,
    pub(crate) finished: Finished,
}

/// Whether a claim has been finished in a transaction of its handler's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    No,
    /// The handler says so: then its row is done, and the ending applies only if it never committed.
    Yes,
    /// The handler failed after it: perhaps the answer to its commit was lost.
    Perhaps,
}

/// A claim that this worker holds.
struct Held {
    task: Arc<Task>,
    woken_by: WokenBy,
    finishing: Finishing,
    /// The end of the lease by the monotonic clock, begun before the claim was sent: never later than the store's.
    lease_until: Instant,
    /// The time by the store's clock when it was claimed, and the moment of it.
    claimed: Reading,
    phase: Phase,
}

enum Phase {
    /// The check of its kind is still to say whether it is to run.
    Asking,
    Queued,
    Running {
        handler: AbortHandle,
        /// When its execution timeout ends; no renewal after that.
        until: Option<Instant>,
    },
    Settling,
}

impl Lane {
    pub(crate) fn new(kind: Kind, policy: Policy, handler: Handler) -> Self {
        // Tasks may have become due while no worker ran.
        let state = LaneState {
            backlog: true,
            ..LaneState::default()
        };
        Self {
            kind,
            policy,
            handler,
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// Waits until a claim has come.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, LaneState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more claims there may be.
    pub(crate) fn room(&self) -> usize {
        let state = self.state();
        self.policy
            .capacity()
            .saturating_sub(state.reserved + state.claims.len())
    }

    /// Keeps up to `wanted` places; says how many.
    pub(crate) fn reserve(&self, wanted: usize) -> usize {
        let mut state = self.state();
        let room = self
            .policy
            .capacity()
            .saturating_sub(state.reserved + state.claims.len());
        let places = room.min(wanted);
        state.reserved += places;
        places
    }

    /// Gives up kept places.
    pub(crate) fn give_back(&self, places: usize) {
        self.state().reserved -= places;
    }

    pub(crate) fn set_backlog(&self, backlog: bool) {
        self.state().backlog = backlog;
    }

    pub(crate) fn has_backlog(&self) -> bool {
        self.state().backlog
    }

    /// Takes claims in, each in a place that was kept for it; to be started in their turn, or only when they have
    /// [`passed`](Self::passed). Says how many older claims are thereby known to be lost.
    pub(crate) fn accept(
        &self,
        tasks: &[Arc<Task>],
        ask_first: bool,
        woken_by: WokenBy,
        claimed: Reading,
        lease_until: Instant,
    ) -> usize {
        let mut replaced = 0;
        {
            let mut state = self.state();
            for task in tasks {
                state.reserved -= 1;
                let id = task.id;
                let held = Held {
                    task: Arc::clone(task),
                    woken_by,
                    finishing: Finishing::default(),
                    lease_until,
                    claimed,
                    phase: if ask_first { Phase::Asking } else { Phase::Queued },
                };
                // A claim that this worker lost without knowing, and got again. If it is being settled, that will
                // be refused, and tells.
                if let Some(lost) = state.forget(id)
                    && !matches!(lost.phase, Phase::Settling)
                {
                    replaced += 1;
                }
                state.claims.insert(id, held);
                if !ask_first {
                    state.queue.push_back(id);
                }
            }
        }
        self.changed.notify_one();
        replaced
    }

    /// These claims are to run, says the check of their kind.
    pub(crate) fn passed(&self, tasks: &[Arc<Task>]) {
        {
            let mut state = self.state();
            for task in tasks {
                if let Some(held) = state.asking(task) {
                    held.phase = Phase::Queued;
                    state.queue.push_back(task.id);
                }
            }
        }
        self.changed.notify_one();
    }

    /// This claim is not to run, and is about to be settled; false if it has been lost or given back meanwhile.
    pub(crate) fn refused(&self, task: &Task) -> bool {
        let mut state = self.state();
        let held = state.asking(task);
        held.map(|held| held.phase = Phase::Settling).is_some()
    }

    /// The claims to renew: those whose handler may still run, or whose end is not settled yet.
    pub(crate) fn renewable(&self, now: Instant) -> Vec<(TaskId, u64)> {
        let state = self.state();
        let renewable = state.claims.iter().filter(|(_, held)| match held.phase {
            Phase::Running {
                until: Some(until), ..
            } => now < until,
            Phase::Asking | Phase::Queued | Phase::Running { until: None, .. } | Phase::Settling => true,
        });
        renewable.map(|(&id, held)| (id, held.task.version)).collect()
    }

    /// The claim holds until `lease_until`.
    pub(crate) fn renewed(&self, id: TaskId, version: u64, lease_until: Instant) {
        if let Some(held) = self
            .state()
            .claims
            .get_mut(&id)
            .filter(|held| held.task.version == version)
        {
            held.lease_until = lease_until;
        }
    }

    /// The claim is somebody else's now: stops its handler and forgets it. Says whether that is news: a claim that
    /// is being settled may be refused because it has just been settled, and one whose handler finishes it in a
    /// transaction because that has just committed.
    pub(crate) fn lost(&self, id: TaskId, version: u64) -> bool {
        let mut state = self.state();
        let held = state.claims.get(&id);
        if !held.is_some_and(|held| held.task.version == version && !held.is_ending()) {
            return false;
        }
        state.forget(id);
        true
    }

    /// The claim has been settled, or never will be.
    pub(crate) fn settled(&self, id: TaskId, version: u64) {
        let mut state = self.state();
        if state
            .claims
            .get(&id)
            .is_some_and(|held| held.task.version == version)
        {
            state.forget(id);
        }
    }

    /// Takes the oldest claim that was not started, to be started or refused.
    pub(crate) fn next(&self, now: Instant) -> Option<Next> {
        let mut state = self.state();
        loop {
            let id = state.queue.pop_front()?;
            let Some(held) = state.claims.get(&id) else {
                continue;
            };
            if now < held.lease_until {
                return Some(Next::Start {
                    task: Arc::clone(&held.task),
                    woken_by: held.woken_by,
                    finishing: held.finishing.clone(),
                    store_now: held.claimed.now(now),
                    store_earliest: held.claimed.earliest(now),
                    lease_until: held.lease_until,
                });
            }
            // Perhaps another's by now: a handler must not start for it here.
            state.forget(id);
            return Some(Next::Lost);
        }
    }

    /// The claim's handler has been started, and is to be stopped if the claim was lost meanwhile.
    pub(crate) fn started(&self, task: &Task, handler: AbortHandle, until: Option<Instant>) {
        match self.state().held(task) {
            Some(held) => held.phase = Phase::Running { handler, until },
            None => handler.abort(),
        }
    }

    /// The claim is about to be settled; gives a time than which the store's clock is not earlier, or none if the claim
    /// is lost.
    pub(crate) fn settling(&self, task: &Task, now: Instant) -> Option<Timestamp> {
        let mut state = self.state();
        let held = state.held(task)?;
        held.phase = Phase::Settling;
        Some(held.claimed.earliest(now))
    }

    /// Takes what was not started, to be settled.
    pub(crate) fn take_queued(&self) -> Vec<Arc<Task>> {
        let mut state = self.state();
        let mut unstarted = std::mem::take(&mut state.queue);
        let asking = state.claims.iter();
        let asking = asking.filter(|(_, held)| matches!(held.phase, Phase::Asking));
        unstarted.extend(asking.map(|(&id, _)| id));
        unstarted
            .into_iter()
            .filter_map(|id| state.released(id))
            .collect()
    }
}

impl LaneState {
    /// The claim of a task by which it is known here, unless it is another one by now.
    fn held(&mut self, task: &Task) -> Option<&mut Held> {
        self.claims
            .get_mut(&task.id)
            .filter(|held| held.task.version == task.version)
    }

    /// The claim of a task, if its check is still to say whether it is to run.
    fn asking(&mut self, task: &Task) -> Option<&mut Held> {
        self.held(task).filter(|held| matches!(held.phase, Phase::Asking))
    }

    fn forget(&mut self, id: TaskId) -> Option<Held> {
        let held = self.claims.remove(&id)?;
        held.stop();
        if matches!(held.phase, Phase::Queued) {
            // Left here it would start its task a second time, should this worker claim it again.
            self.queue.retain(|&queued| queued != id);
        }
        Some(held)
    }

    fn released(&mut self, id: TaskId) -> Option<Arc<Task>> {
        let held = self.claims.get_mut(&id)?;
        held.phase = Phase::Settling;
        Some(Arc::clone(&held.task))
    }
}

impl Held {
    /// Whether its row may have ended by this worker's own doing.
    fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Settling) || self.finishing.has_begun()
    }

    fn stop(&self) {
        if let Phase::Running { handler, .. } = &self.phase {
            handler.abort();
        }
    }
}
