//! What the parts of a worker share.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tracing::{error, warn};

use super::check_queue::CheckQueue;
use super::kind_queue::KindQueue;
use super::lease::{Lease, Now};
use super::options::{Alarm, Options};
use super::settle::{Finished, Settled};
use super::stop::Stop;
use crate::clock::panics::text_of;
use crate::expected::Check;
use crate::schedule::kernel::Kernel;
use crate::store::{Claim, Ending};
use crate::work::budget::{Budget, ReservedBytes};
use crate::work::handler::Handler;
use crate::work::retry::Policy;
use crate::work::verdict::tell_dead;
use crate::{Kind, State, Task, Timestamp};

/// How many bytes of payloads are asked for at once: what one call of the store reads.
const A_CALL: usize = 16 << 20;

/// The worker's queues, one a kind, and what they stand on.
pub(crate) struct Engine {
    pub(crate) kernel: Arc<Kernel>,
    pub(crate) queues: BTreeMap<Kind, Arc<KindQueue>>,
    /// Of the kinds that have a check, with a handler here or not.
    pub(crate) check_queues: BTreeMap<Kind, Arc<CheckQueue>>,
    pub(crate) lease: Duration,
    pub(crate) sweep_every: Duration,
    /// There is room again in a queue with a backlog.
    pub(crate) room: Notify,
    /// Claims are to be renewed now, as they may have been lost.
    pub(crate) unsure: Notify,
    /// Something is to start, and what is known of pauses may be out of date.
    pub(crate) pauses: Notify,
    /// For the payloads of all queues.
    pub(crate) budget: Budget,
    /// How far it is to stop.
    pub(crate) stop: Stop,
    owner: Arc<str>,
    on_dead: Option<Alarm>,
    /// Kinds without a handler that were warned about.
    unknown: Mutex<BTreeSet<Kind>>,
}

impl Engine {
    /// Lets every queue with room claim what is due, whether or not its wake-up has come.
    pub(crate) fn look_for_due(&self) {
        for queue in self.queues.values() {
            queue.set_backlog(true);
        }
        self.room.notify_one();
    }

    pub(crate) fn new(
        kernel: Arc<Kernel>,
        kinds: BTreeMap<Kind, (Policy, Handler)>,
        options: Options,
    ) -> Self {
        let owner = options.name.unwrap_or_else(|| {
            let number = kernel.clock.random_below(1 << 32);
            format!("worker-{number:08x}")
        });
        let queues = kinds
            .into_iter()
            .map(|(kind, (policy, handler))| {
                kernel.metrics.handled(&kind);
                let check = kernel.checks.get(&kind);
                let ask_after = check.map_or(Duration::MAX, Check::period);
                let queue = KindQueue::new(kind.clone(), policy, handler, ask_after);
                (kind, Arc::new(queue))
            })
            .collect();
        let check_queues = kernel
            .checks
            .iter()
            .map(|(kind, check)| {
                (
                    kind.clone(),
                    Arc::new(CheckQueue::new(kind.clone(), check.clone())),
                )
            })
            .collect();
        Self {
            kernel,
            queues,
            check_queues,
            lease: options.lease,
            sweep_every: options.sweep_every,
            room: Notify::new(),
            unsure: Notify::new(),
            pauses: Notify::new(),
            budget: Budget::new(options.payload_memory),
            stop: Stop::default(),
            owner: owner.into(),
            on_dead: options.on_dead,
            unknown: Mutex::default(),
        }
    }

    /// Reserves room for tasks, at most `wanted` of each kind, and makes a claim of it.
    ///
    /// A kind that has no room is in the claim with none, which tells the store that it has a handler here.
    pub(crate) fn reserve(&self, wanted: impl Fn(&KindQueue) -> usize) -> Reserved<'_> {
        let bytes = self.budget.take_up_to(A_CALL);
        let room = self
            .queues
            .iter()
            .map(|(kind, queue)| (kind.clone(), queue.reserve(wanted(queue))))
            .collect();
        Reserved {
            queues: &self.queues,
            freed: &self.room,
            claim: Claim {
                owner: Arc::clone(&self.owner),
                lease: self.lease,
                room,
                bytes: bytes.bytes(),
                history: self.kernel.histories(),
            },
            _bytes: bytes,
        }
    }

    /// Its name.
    pub(crate) fn owner(&self) -> &str {
        &self.owner
    }

    /// Now, by all that this worker knows of time.
    pub(crate) fn now(&self) -> Now {
        Now {
            moment: self.kernel.clock.moment(),
            store: self.kernel.time.now(),
        }
    }

    /// The lease of what the store was asked for at `asked`.
    pub(crate) fn lease_from(&self, asked: &Now) -> Lease {
        let store = asked.store.or_else(|| self.kernel.time.now());
        Lease::new(asked.moment, store.unwrap_or(Timestamp::MAX), self.lease)
    }

    /// Whether any claim that is to be renewed may not hold any more.
    pub(crate) fn is_unsure(&self, now: &Now) -> bool {
        let mut queues = self.queues.values();
        queues.any(|queue| queue.is_unsure(now, self.lease))
    }

    /// Due tasks were seen that were not claimed.
    pub(crate) fn waiting(&self, waiting: &BTreeMap<Kind, usize>) {
        for (kind, &count) in waiting {
            let is_awaited = self.kernel.due.raise(kind);
            if let Some(queue) = self.queues.get(kind) {
                if queue.is_paused() {
                    continue;
                }
                self.kernel.counters.no_room.add(count);
                queue.set_backlog(true);
                self.room.notify_one();
                continue;
            }
            self.kernel.counters.no_handler.add(count);
            if is_awaited {
                continue;
            }
            let mut unknown = self.unknown.lock().unwrap_or_else(PoisonError::into_inner);
            if unknown.insert(kind.clone()) {
                warn!(
                    %kind,
                    "a task is due that this worker has no handler for; it waits for one that has, or for who claims \
                     it: register a handler, or see that they run"
                );
            }
        }
    }

    /// Gives back what was claimed and not started.
    pub(crate) fn release_queued(&self, settle: &mpsc::UnboundedSender<Settled>) {
        for queue in self.queues.values() {
            self.release(queue, settle);
        }
    }

    /// The same of one kind.
    pub(crate) fn release(&self, queue: &Arc<KindQueue>, settle: &mpsc::UnboundedSender<Settled>) {
        let since = self.kernel.clock.moment();
        for attempt in queue.take_queued(since) {
            let _ = settle.send(Settled {
                queue: Arc::clone(queue),
                attempt,
                ending: Ending::Release,
                finished: Finished::No,
                since,
            });
        }
    }

    /// A task is dead: tells people.
    pub(crate) fn dead(&self, task: &Task, reason: &str, given_back: u32, ended_at: Timestamp) {
        let attempt = task.attempt.saturating_sub(given_back);
        tell_dead(task, attempt, reason);
        if let Some(alarm) = &self.on_dead {
            let task = Task {
                state: State::Dead,
                version: task.version + 1,
                attempt,
                wake_at: None,
                last_error: Some(reason.to_owned()),
                updated_at: ended_at,
                finished_at: Some(ended_at),
                ..task.clone()
            };
            // The rest of the worker must not end with a user's alarm.
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| alarm(&task))) {
                error!(
                    id = %task.id, panic = text_of(panic),
                    "the function given to Worker::on_dead panicked; the task is dead all the same"
                );
            }
        }
    }
}

/// Room in the queues, kept for the tasks that a claim may bring; what is not used is given back when it is dropped.
pub(crate) struct Reserved<'a> {
    queues: &'a BTreeMap<Kind, Arc<KindQueue>>,
    freed: &'a Notify,
    pub(crate) claim: Claim,
    _bytes: ReservedBytes,
}

impl Reserved<'_> {
    /// Takes one place for a task of this kind, now held by its claim.
    pub(crate) fn take(&mut self, kind: &Kind) -> Option<&Arc<KindQueue>> {
        let room = self.claim.room.get_mut(kind)?;
        *room = room.checked_sub(1)?;
        self.queues.get(kind)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        for (kind, &unused) in &self.claim.room {
            if let Some(queue) = self.queues.get(kind) {
                queue.give_back(unused);
                // A wake-up that came meanwhile may have found no room because of this reservation alone.
                if unused > 0 && queue.has_backlog() {
                    self.freed.notify_one();
                }
            }
        }
    }
}
