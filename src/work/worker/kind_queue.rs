//! The tasks of one kind in one worker: how many there may be, which wait, which run.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::attempt::Attempt;
use super::held::{Held, Phase};
use super::lease::{Lease, Now};
use super::queue_state::QueueState;
use crate::clock::Moment;
use crate::store::Renewal;
use crate::work::handler::Handler;
use crate::work::retry::Policy;
use crate::work::verdict::needs_note;
use crate::{Kind, TaskId, Timestamp};

/// Holds the claims of one kind, within the kind's limits, and keeps order among them.
pub(crate) struct KindQueue {
    pub(crate) kind: Kind,
    pub(crate) policy: Policy,
    pub(crate) handler: Handler,
    /// For how long what the check of the kind has said is believed.
    ask_after: Duration,
    state: Mutex<QueueState>,
    /// A claim came.
    changed: Notify,
}

/// What is next in a queue.
pub(crate) enum Next {
    /// A claim whose lease holds, and whose start is noted where that must be.
    Start(Arc<Attempt>, Lease),
    /// A claim whose start is to be noted in the store first.
    Note(Arc<Attempt>),
    /// A claim whose check is asked again, as its last answer is too old.
    Ask(Arc<Attempt>),
    /// Only claims that must be renewed first, as they may not hold any more.
    Unsure,
}

impl KindQueue {
    pub(crate) fn new(kind: Kind, policy: Policy, handler: Handler, ask_after: Duration) -> Self {
        // Tasks may have become due while no worker ran.
        let state = QueueState {
            backlog: true,
            ..QueueState::default()
        };
        Self {
            kind,
            policy,
            handler,
            ask_after,
            state: Mutex::new(state),
            changed: Notify::new(),
        }
    }

    /// Waits until a claim has come.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many more claims there may be.
    pub(crate) fn room(&self) -> usize {
        self.room_in(&self.state())
    }

    fn room_in(&self, state: &QueueState) -> usize {
        let capacity = if state.paused { 0 } else { self.policy.capacity() };
        capacity.saturating_sub(state.reserved + state.claims.len())
    }

    /// Keeps up to `wanted` places; says how many.
    pub(crate) fn reserve(&self, wanted: usize) -> usize {
        let mut state = self.state();
        let places = self.room_in(&state).min(wanted);
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

    pub(crate) fn is_paused(&self) -> bool {
        self.state().paused
    }

    /// Pauses or resumes the kind; says whether it was resumed by this.
    pub(crate) fn set_paused(&self, paused: bool) -> bool {
        let was_paused = std::mem::replace(&mut self.state().paused, paused);
        was_paused && !paused
    }

    /// Whether any claim waits to be started.
    pub(crate) fn has_queued(&self) -> bool {
        !self.state().waiting.is_empty()
    }

    /// Takes claims in, each in a place that was kept for it; to be started in their turn, or only when they have
    /// [`passed`](Self::passed). Says how many older claims are thereby known to be lost.
    pub(crate) fn accept(&self, claims: &[Arc<Attempt>], lease: Lease, ask_first: bool) -> usize {
        let mut replaced = 0;
        {
            let mut state = self.state();
            for attempt in claims {
                state.reserved -= 1;
                let task = &attempt.task;
                let id = task.id;
                if let Some(held) = state.claims.get(&id) {
                    if held.version() > task.version {
                        // Its answer was late: it has been lost, and the task claimed again since.
                        replaced += 1;
                        continue;
                    }
                    // A claim that is being settled is not counted: its settlement is refused, and reports the loss.
                    replaced += usize::from(!matches!(held.phase, Phase::Settling { .. }));
                    state.forget(id);
                }
                let held = Held {
                    attempt: Arc::clone(attempt),
                    lease,
                    phase: if ask_first { Phase::Asking } else { Phase::Queued },
                    passed: None,
                    noted: false,
                };
                state.claims.insert(id, held);
                if !ask_first {
                    state.waiting.push_back(id);
                }
            }
        }
        self.changed.notify_one();
        replaced
    }

    /// Queues claims whose check allows them to run.
    pub(crate) fn passed(&self, attempts: &[Arc<Attempt>], now: Moment) {
        {
            let mut state = self.state();
            for attempt in attempts {
                if let Some(held) = state.asking(attempt) {
                    held.phase = Phase::Queued;
                    held.passed = Some(now);
                    state.waiting.push_back(attempt.task.id);
                }
            }
        }
        self.changed.notify_one();
    }

    /// This claim is not to run, and is about to be settled; false if it has been lost or given back meanwhile.
    pub(crate) fn refused(&self, attempt: &Arc<Attempt>, since: Moment) -> bool {
        let mut state = self.state();
        let held = state.asking(attempt);
        held.map(|held| held.settle(since)).is_some()
    }

    /// The claims to renew; those whose end is not settled yet for `patience` at the most.
    pub(crate) fn renewable(&self, now: &Moment, patience: Duration) -> Vec<Renewal> {
        let state = self.state();
        state
            .renewable(now, patience)
            .map(|(_, renewal)| renewal)
            .collect()
    }

    /// Whether there is a claim to be renewed that may not hold any more.
    pub(crate) fn is_unsure(&self, now: &Now, patience: Duration) -> bool {
        let state = self.state();
        state
            .renewable(&now.moment, patience)
            .any(|(held, _)| !held.lease.holds(now))
    }

    /// The store could not renew a claim.
    pub(crate) fn not_renewed(&self, renewal: &Renewal, now: Moment) {
        if let Some(held) = self.state().claimed(renewal) {
            held.wait_for_store(now);
        }
    }

    /// The claim holds by this lease from now on.
    pub(crate) fn renewed(&self, renewal: &Renewal, lease: Lease) {
        if let Some(held) = self.state().claimed(renewal) {
            held.lease.renew(lease);
            held.noted |= renewal.started;
        }
    }

    /// Something that waits may go on.
    pub(crate) fn look_again(&self) {
        self.changed.notify_one();
    }

    /// It is noted that its handler starts, which is next.
    pub(crate) fn noted(&self, attempt: &Arc<Attempt>, lease: Lease) {
        {
            let mut state = self.state();
            let Some(held) = state.end_noting(attempt) else {
                return;
            };
            held.noted = true;
            held.lease.renew(lease);
            state.waiting.push_front(attempt.task.id);
        }
        self.changed.notify_one();
    }

    /// It could not be noted that its handler starts: others may start in its place until it is queued again.
    pub(crate) fn put_off(&self, attempt: &Arc<Attempt>) {
        self.state().end_noting(attempt);
        self.changed.notify_one();
    }

    /// Queues a claim behind the others, as its start could not be noted.
    pub(crate) fn queue_again(&self, attempt: &Arc<Attempt>) {
        {
            let mut state = self.state();
            state.end_noting(attempt);
            let held = state.held(attempt);
            if held.is_some_and(|held| matches!(held.phase, Phase::Queued)) {
                state.waiting.push_back(attempt.task.id);
            }
        }
        self.changed.notify_one();
    }

    /// How many claims are about to start, as soon as that is noted.
    pub(crate) fn noting(&self) -> usize {
        self.state().noting
    }

    /// Stops the handler of a lost claim, and forgets it. Returns false if our own write may have ended it: where it is
    /// being settled, or its handler finishes it in a transaction that may have just committed.
    pub(crate) fn lost(&self, id: TaskId, version: u64) -> bool {
        let mut state = self.state();
        let held = state.claims.get(&id);
        if !held.is_some_and(|held| held.version() == version && !held.is_ending()) {
            return false;
        }
        state.forget(id);
        true
    }

    /// The claim has been settled, or never will be.
    pub(crate) fn settled(&self, attempt: &Arc<Attempt>) {
        let mut state = self.state();
        if state.held(attempt).is_some() {
            state.forget(attempt.task.id);
        }
    }

    /// Takes the oldest claim that was not started and may be, to be started or refused.
    pub(crate) fn next(&self, now: &Now) -> Option<Next> {
        let ask_after = self.ask_after;
        let mut guard = self.state();
        let state = &mut *guard;
        if state.paused {
            return None;
        }
        let mut unsure = false;
        let mut at = 0;
        while let Some(&id) = state.waiting.get(at) {
            let is_stopping = state.is_stopping(id);
            let Some(held) = state.claims.get_mut(&id) else {
                state.waiting.remove(at);
                continue;
            };
            let holds = held.lease.holds(now);
            if is_stopping || !holds {
                // Perhaps another's by now: a handler must not start for it here before it has been renewed.
                unsure |= !holds && !is_stopping;
                at += 1;
                continue;
            }
            state.waiting.remove(at);
            let is_old = |passed: Moment| passed.until(&now.moment) >= ask_after;
            if held.passed.is_some_and(is_old) {
                held.phase = Phase::Asking;
                return Some(Next::Ask(Arc::clone(&held.attempt)));
            }
            if !held.noted && needs_note(&held.attempt.task, &self.policy) {
                held.phase = Phase::Noting;
                state.noting += 1;
                return Some(Next::Note(Arc::clone(&held.attempt)));
            }
            held.phase = Phase::Starting;
            return Some(Next::Start(Arc::clone(&held.attempt), held.lease));
        }
        unsure.then_some(Next::Unsure)
    }

    /// The claim's handler has been started, and is to be stopped if the claim was lost meanwhile.
    pub(crate) fn started(&self, attempt: &Arc<Attempt>, handler: AbortHandle, until: Option<Instant>) {
        let mut state = self.state();
        match state.held(attempt) {
            Some(held) => held.phase = Phase::Running { handler, until },
            None => {
                handler.abort();
                state.stopping.insert((attempt.task.id, attempt.task.version));
            }
        }
    }

    /// The claim's handler was to start when its lease had ended: it waits for a renewal.
    pub(crate) fn put_back(&self, attempt: &Arc<Attempt>) {
        let mut state = self.state();
        if let Some(held) = state.held(attempt) {
            held.phase = Phase::Queued;
            state.waiting.push_front(attempt.task.id);
        }
    }

    /// The claim's handler has come to an end, by itself or stopped.
    pub(crate) fn handler_ended(&self, attempt: &Attempt, now: &Moment) {
        let (id, mut state) = (attempt.task.id, self.state());
        // A claim that has waited for this was not renewed meanwhile. It is before it starts, if it has waited for long.
        if state.stopping.remove(&(id, attempt.task.version))
            && let Some(held) = state.claims.get_mut(&id)
        {
            held.lease.end_if_late(now);
        }
    }

    /// Marks a claim as about to be settled. Returns a lower bound of the store's time, or none if the claim is lost.
    pub(crate) fn settling(&self, attempt: &Arc<Attempt>, since: Moment) -> Option<Timestamp> {
        self.state().held(attempt)?.settle(since);
        Some(attempt.claimed.earliest(since.instant()))
    }

    /// Takes what was not started and is not about to be, to be settled.
    pub(crate) fn take_queued(&self, since: Moment) -> Vec<Arc<Attempt>> {
        let mut state = self.state();
        state.waiting.clear();
        state.noting = 0;
        let unstarted = state
            .claims
            .values_mut()
            .filter(|held| matches!(held.phase, Phase::Asking | Phase::Queued | Phase::Noting));
        let release = |held: &mut Held| {
            held.settle(since);
            Arc::clone(&held.attempt)
        };
        unstarted.map(release).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::Task;
    use crate::clock::Clock;
    use crate::work::handler::raw;

    fn queue() -> KindQueue {
        let handler = raw(async |_| unreachable!("it is not called"));
        KindQueue::new("k".into(), Policy::new(), handler, Duration::MAX)
    }

    fn now(clock: &Clock) -> Now {
        Now {
            moment: clock.moment(),
            store: None,
        }
    }

    fn lease(asked: &Now) -> Lease {
        Lease::new(asked.moment, Timestamp::default(), Duration::from_secs(30))
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_that_is_about_to_start_is_not_given_back() {
        let clock = Clock::simulated(1);
        let now = now(&clock);
        let queue = queue();
        let [first, second] = [1, 2].map(|number| {
            let task = Task::blank(TaskId::from_bytes([number; 16]), "k".into());
            Attempt::claimed_now(task, &clock)
        });
        assert_eq!(queue.reserve(2), 2);
        let lease = lease(&now);
        queue.accept(&[Arc::clone(&first), Arc::clone(&second)], lease, false);

        // Another thread gives back what is queued while one starts.
        assert!(matches!(queue.next(&now), Some(Next::Start(attempt, _)) if Arc::ptr_eq(&attempt, &first)));
        let given_back = queue.take_queued(now.moment);
        assert!(matches!(&given_back[..], [attempt] if Arc::ptr_eq(attempt, &second)));
        let handler = tokio::spawn(std::future::pending::<()>());
        queue.started(&first, handler.abort_handle(), None);
        assert!(queue.take_queued(now.moment).is_empty());
        let renewed = queue.renewable(&now.moment, Duration::MAX);
        let started = |id| renewed.iter().find(|renewal| renewal.id == id).unwrap().started;
        assert!(started(first.task.id) && !started(second.task.id));
    }

    /// It was not renewed while it waited for an earlier handler, and may be lost in the next moment.
    #[tokio::test(start_paused = true)]
    async fn a_claim_that_has_waited_for_a_handler_is_renewed_before_it_starts() {
        let clock = Clock::simulated(1);
        let now = now(&clock);
        let queue = queue();
        let [first, second] = [1, 2].map(|version| {
            let mut task = Task::blank(TaskId::from_bytes([1; 16]), "k".into());
            task.version = version;
            Attempt::claimed_now(task, &clock)
        });
        assert_eq!(queue.reserve(2), 2);
        let lease = lease(&now);
        queue.accept(&[Arc::clone(&first)], lease, false);
        assert!(matches!(queue.next(&now), Some(Next::Start(..))));
        let handler = tokio::spawn(std::future::pending::<()>());
        queue.started(&first, handler.abort_handle(), None);

        queue.accept(&[Arc::clone(&second)], lease, false);
        assert!(queue.next(&now).is_none());
        assert!(queue.renewable(&now.moment, Duration::MAX).is_empty());
        clock.sleep(Duration::from_secs(10)).await;
        let now = self::now(&clock);
        queue.handler_ended(&first, &now.moment);
        assert!(matches!(queue.next(&now), Some(Next::Unsure)));
        let renewals = queue.renewable(&now.moment, Duration::MAX);
        let lease = self::lease(&now);
        queue.renewed(&renewals[0], lease);
        assert!(matches!(queue.next(&now), Some(Next::Start(attempt, _)) if Arc::ptr_eq(&attempt, &second)));
    }
}
