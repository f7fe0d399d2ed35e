//! The tasks of one kind in one worker: how many there may be, which wait, which run.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::{AbortHandle, JoinError, JoinSet};
use tokio::time::Instant;

use super::Stop;
use super::engine::Engine;
use super::settle::Settled;
use super::verdict::{Verdict, refusal};
use crate::handler::Handler;
use crate::retry::Policy;
use crate::timestamp::{duration, millis};
use crate::{Context, Kind, Task, TaskId, Timestamp, WokenBy};

/// Holds the claims of one kind, within the kind's limits, and keeps order among them.
pub(crate) struct Lane {
    pub(crate) kind: Kind,
    pub(crate) policy: Policy,
    handler: Handler,
    state: Mutex<LaneState>,
    /// A claim came, or one was lost.
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

/// A claim that this worker holds.
struct Held {
    task: Arc<Task>,
    woken_by: WokenBy,
    /// The end of the lease by the monotonic clock, begun before the claim was sent: never later than the store's.
    lease_until: Instant,
    /// The time by the store's clock when it was claimed, and the moment of it.
    claimed: (Timestamp, Instant),
    phase: Phase,
}

enum Phase {
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

    /// Takes claims in, each in a place that was kept for it. Says how many older claims are thereby known to be lost.
    pub(crate) fn accept(
        &self,
        tasks: Vec<Task>,
        woken_by: WokenBy,
        now: Timestamp,
        at: Instant,
        lease_until: Instant,
    ) -> usize {
        let mut replaced = 0;
        {
            let mut state = self.state();
            for task in tasks {
                state.reserved -= 1;
                let id = task.id;
                let task = Arc::new(task);
                let held = Held {
                    task,
                    woken_by,
                    lease_until,
                    claimed: (now, at),
                    phase: Phase::Queued,
                };
                // A claim that this worker lost without knowing, and got again. If it is being settled, that will
                // be refused, and tells.
                if let Some(lost) = state.forget(id)
                    && !matches!(lost.phase, Phase::Settling)
                {
                    replaced += 1;
                }
                state.claims.insert(id, held);
                state.queue.push_back(id);
            }
        }
        self.changed.notify_one();
        replaced
    }

    /// The claims to renew: those whose handler may still run, or whose end is not settled yet.
    pub(crate) fn renewable(&self, now: Instant) -> Vec<(TaskId, u64)> {
        let state = self.state();
        let renewable = state.claims.iter().filter(|(_, held)| match held.phase {
            Phase::Running {
                until: Some(until), ..
            } => now < until,
            Phase::Running { until: None, .. } | Phase::Queued | Phase::Settling => true,
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
    /// is being settled may be refused because it has just been settled.
    pub(crate) fn lost(&self, id: TaskId, version: u64) -> bool {
        let mut state = self.state();
        let held = state.claims.get(&id);
        if !held.is_some_and(|held| held.task.version == version && !matches!(held.phase, Phase::Settling)) {
            return false;
        }
        state.forget(id);
        drop(state);
        self.changed.notify_one();
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

    /// Takes what was not started, to be settled.
    pub(crate) fn take_queued(&self) -> Vec<Arc<Task>> {
        let mut state = self.state();
        let queued = std::mem::take(&mut state.queue);
        queued.into_iter().filter_map(|id| state.settling(id)).collect()
    }
}

impl LaneState {
    fn forget(&mut self, id: TaskId) -> Option<Held> {
        let held = self.claims.remove(&id)?;
        held.stop();
        if matches!(held.phase, Phase::Queued) {
            // Left here it would start its task a second time, should this worker claim it again.
            self.queue.retain(|&queued| queued != id);
        }
        Some(held)
    }

    fn settling(&mut self, id: TaskId) -> Option<Arc<Task>> {
        let held = self.claims.get_mut(&id)?;
        held.stop();
        held.phase = Phase::Settling;
        Some(Arc::clone(&held.task))
    }
}

impl Held {
    fn stop(&self) {
        if let Phase::Running { handler, .. } = &self.phase {
            handler.abort();
        }
    }

    /// The time by the store's clock.
    fn store_now(&self, now: Instant) -> Timestamp {
        let (claimed, at) = self.claimed;
        claimed.after(now.saturating_duration_since(at))
    }
}

/// Runs the handlers of a lane, as many at once as its policy says, until stopped; then until the last has ended.
pub(crate) async fn run(
    engine: Arc<Engine>,
    lane: Arc<Lane>,
    settle: mpsc::UnboundedSender<Settled>,
    mut stopped: watch::Receiver<Stop>,
) {
    let mut handlers = JoinSet::new();
    // Only looked up, never walked through: its order is no matter.
    let mut running = HashMap::new();
    loop {
        let stop = *stopped.borrow_and_update();
        let stopping = stop > Stop::No;
        if stop == Stop::Now {
            handlers.abort_all();
        }
        while !stopping && handlers.len() < lane.policy.concurrency {
            match start_next(&engine, &lane, &settle, &mut handlers) {
                Some((handler, task)) => running.insert(handler, task),
                None => break,
            };
        }
        if stopping && handlers.is_empty() {
            return;
        }
        let ended = tokio::select! {
            biased;
            Some(ended) = handlers.join_next_with_id(), if !handlers.is_empty() => ended,
            () = lane.changed.notified(), if !stopping => continue,
            _ = stopped.changed(), if stop < Stop::Now => continue,
        };
        let (handler, verdict) = match ended {
            Ok((handler, Some(answer))) => (handler, Verdict::Answered(answer)),
            Ok((handler, None)) => (handler, Verdict::TimedOut),
            Err(error) if error.is_panic() => (error.id(), Verdict::Panicked(panic_text(error))),
            Err(error) => (error.id(), Verdict::Stopped),
        };
        let task: Option<Arc<Task>> = running.remove(&handler);
        if let Some(task) = task {
            finish(&engine, &lane, &settle, &task, verdict);
        }
    }
}

type Handlers = JoinSet<Option<Result<crate::Outcome, crate::Failure>>>;

/// Starts the handler of the next claim that may start; none, if there is none.
fn start_next(
    engine: &Engine,
    lane: &Lane,
    settle: &mpsc::UnboundedSender<Settled>,
    handlers: &mut Handlers,
) -> Option<(tokio::task::Id, Arc<Task>)> {
    let parts = &engine.parts;
    loop {
        let now = parts.clock.instant();
        let mut guard = lane.state();
        let state = &mut *guard;
        let id = state.queue.pop_front()?;
        let Some(held) = state.claims.get_mut(&id) else {
            continue;
        };
        if now >= held.lease_until {
            // Perhaps another's by now: a handler must not start for it here.
            state.forget(id);
            parts.counters.lost_claims.add(1);
            engine.room.notify_one();
            continue;
        }
        let store_now = held.store_now(now);
        let task = Arc::clone(&held.task);
        if let Some(verdict) = refusal(&task, &lane.policy, store_now) {
            drop(guard);
            finish(engine, lane, settle, &task, verdict);
            continue;
        }
        let lateness = duration(store_now.millis_since(task.due_at));
        let context = Context::new(Arc::clone(&task), lateness, held.woken_by);
        let handler = Arc::clone(&lane.handler);
        let timeout = lane.policy.execution_timeout;
        let clock = parts.clock.clone();
        let run = async move {
            clock
                .timeout(timeout, async move { handler(context).await })
                .await
        };
        let abort = parts.clock.spawn_in(handlers, run);
        let started = abort.id();
        held.phase = Phase::Running {
            handler: abort,
            until: now.checked_add(timeout),
        };
        parts.counters.started.add(1);
        parts.counters.late(lateness);
        return Some((started, task));
    }
}

/// A claim has its verdict: hands it to be settled, unless it was lost meanwhile.
fn finish(
    engine: &Engine,
    lane: &Lane,
    settle: &mpsc::UnboundedSender<Settled>,
    task: &Arc<Task>,
    verdict: Verdict,
) {
    let parts = &engine.parts;
    let now = parts.clock.instant();
    let ending = {
        let mut state = lane.state();
        let Some(held) = state
            .claims
            .get_mut(&task.id)
            .filter(|held| held.task.version == task.version)
        else {
            return;
        };
        held.phase = Phase::Settling;
        verdict.ending(task, &lane.policy, held.store_now(now), parts)
    };
    if let Some(lane) = engine.lanes.get(&lane.kind) {
        // The other end is gone only when the worker is.
        let _ = settle.send(Settled {
            lane: Arc::clone(lane),
            task: Arc::clone(task),
            ending,
        });
    }
}

fn panic_text(error: JoinError) -> String {
    let Ok(panic) = error.try_into_panic() else {
        return String::new();
    };
    match panic.downcast::<String>() {
        Ok(text) => *text,
        Err(panic) => panic
            .downcast::<&str>()
            .map_or_else(|_| String::new(), |text| (*text).to_owned()),
    }
}

/// How long before `deadline` after the planned time; negative if it has passed.
pub(crate) fn left(task: &Task, deadline: Duration, now: Timestamp) -> i64 {
    task.planned_at.shifted(millis(deadline)).millis_since(now)
}
