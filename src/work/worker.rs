//! The worker: wake-up, look at the row, then drop, hop, or claim and run.

mod arrivals;
mod attempt;
mod check_queue;
mod engine;
mod following;
mod handlers;
mod held;
mod kind_queue;
mod lease;
mod options;
mod pausing;
mod queue_state;
mod ready;
mod recheck;
mod renewing;
mod settle;
mod stop;
mod sweep;

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use self::engine::Engine;
use self::handlers::Senders;
use self::options::Options;
use self::stop::{Asked, Stage, all_ended, defect, until};
use crate::clock::hidden::Hidden;
use crate::work::claimant;
use crate::work::handler::{Handler, raw, typed};
use crate::work::retry::Policy;
use crate::{Context, Error, Failure, Kind, Outcome, Scheduler, Task};

/// Receives wake-ups, moves each task's wake-up on until the task is due, and runs its handler.
///
/// Any number of workers, in any number of processes, may run over one store and its backends. The workers of one scheduler
/// share its wake-ups, so give each of them the handlers of all kinds: a wake-up that comes to one without a handler of its kind
/// is left to the sweep, and its task starts up to [`sweep_every`](Self::sweep_every) late.
///
/// ```
/// use std::sync::Arc;
///
/// use delayline::store::MemoryStore;
/// use delayline::{Context, NewTask, Outcome, Scheduler, State, Worker};
/// use tokio::sync::Notify;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), delayline::Error> {
/// let scheduler = Scheduler::new(MemoryStore::new());
/// let id = scheduler.schedule(NewTask::new("mail.send", "hello")).await?.task().id;
///
/// let sent = Arc::new(Notify::new());
/// let sending = Arc::clone(&sent);
/// let worker = Worker::new(&scheduler).handle("mail.send", move |text: String, _: Context| {
///     let sent = Arc::clone(&sending);
///     async move {
///         println!("{text}");
///         sent.notify_one();
///         Ok(Outcome::Done)
///     }
/// });
/// // A service waits for its signal to stop.
/// worker.run_until(sent.notified()).await?;
///
/// let task = scheduler.find(id).await?;
/// assert_eq!(task.map(|task| task.state), Some(State::Done));
/// # Ok(())
/// # }
/// ```
pub struct Worker {
    scheduler: Scheduler,
    kinds: Vec<(Kind, Policy, Handler)>,
    /// What was given and cannot be used.
    refused: Option<Error>,
    options: Options,
}

/// For how long a worker whose patience has ended waits for its handlers to come to their next await, and at the
/// least for the store to take what is given back.
const LAST_WAIT: Duration = Duration::from_secs(5);

impl Worker {
    /// A worker beside `scheduler`, with no handler yet.
    pub fn new(scheduler: &Scheduler) -> Self {
        Self {
            scheduler: scheduler.clone(),
            kinds: Vec::new(),
            refused: None,
            options: Options::default(),
        }
    }

    /// Runs the tasks of `kind` with `handler`, an async function of the payload (JSON) and a [`Context`], by the
    /// default policy. A payload that is no `T` is a failed attempt.
    #[must_use]
    pub fn handle<T, F, A>(self, kind: impl Into<Kind>, handler: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(T, Context) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        self.handle_with(kind, Policy::default(), handler)
    }

    /// Runs the tasks of `kind` with `handler`, an async function of the payload (JSON) and a [`Context`].
    #[must_use]
    pub fn handle_with<T, F, A>(mut self, kind: impl Into<Kind>, policy: Policy, handler: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(T, Context) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        self.kinds.push((kind.into(), policy, typed(handler)));
        self
    }

    /// Runs the tasks of `kind` with `handler`, an async function of a [`Context`], which has the payload's bytes.
    #[must_use]
    pub fn handle_bytes<F, A>(mut self, kind: impl Into<Kind>, policy: Policy, handler: F) -> Self
    where
        F: Fn(Context) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        self.kinds.push((kind.into(), policy, raw(handler)));
        self
    }

    /// Makes it refuse to start, unless it does so already, for a reason that shows only while it is put together.
    #[cfg(feature = "rocketmq")]
    pub(crate) fn refuse(mut self, error: Error) -> Self {
        self.refused.get_or_insert(error);
        self
    }

    /// What people see in [`Task::owner`]. Default: `worker-` and a random number.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.options.name = Some(name.into());
        self
    }

    /// For how long a claim holds unless it is renewed, which is done three times as often. A worker that dies gives
    /// its tasks back after this long. 1 s up to a day; default 30 s.
    #[must_use]
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = lease;
        self
    }

    /// How often overdue rows are looked for: what a lost wake-up costs at the most. Default 500 ms.
    #[must_use]
    pub fn sweep_every(mut self, pause: Duration) -> Self {
        self.options.sweep_every = pause;
        self
    }

    /// How many bytes of payloads this worker holds at once, of running and of prefetched tasks; what is claimed last may
    /// exceed it. At least 1. Default 64 MiB.
    #[must_use]
    pub fn payload_memory(mut self, bytes: usize) -> Self {
        self.options.payload_memory = bytes;
        self
    }

    /// For how long a stopping worker waits for its running handlers; what then still runs is stopped at its next
    /// await and given back. Default 30 s.
    #[must_use]
    pub fn stop_timeout(mut self, timeout: Duration) -> Self {
        self.options.stop_timeout = timeout;
        self
    }

    /// Called with each task that has become dead, beside the `tracing` event: the place for an alarm. It must not
    /// block.
    #[must_use]
    pub fn on_dead(mut self, alarm: impl Fn(&Task) + Send + Sync + 'static) -> Self {
        self.options.on_dead = Some(Arc::new(alarm));
        self
    }

    /// Runs for ever.
    pub async fn run(self) -> Result<(), Error> {
        self.run_until(std::future::pending()).await
    }

    /// Runs until `stop` ends; then takes nothing new, gives back what it has not started, waits for running
    /// handlers, and returns.
    ///
    /// Dropping the returned future instead stops everything at once, as a crash would; nothing is lost by it.
    ///
    /// Fails at once if the settings cannot be used, or if the store says that it can never work as it is. One that
    /// is merely away is waited for.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<(), Error> {
        self.run_until_replaced(std::future::pending(), stop).await
    }

    /// Runs until another worker takes its place, or until `stop` ends: how policies, handlers and kinds are changed while a
    /// process runs. Start the next worker over the same scheduler, and then end `replaced`.
    ///
    /// Then it takes nothing new, gives back what it has not started, and returns when its last handler has ended, each by the
    /// policy that it was started with, however long that takes; only from the end of `stop` on it waits no longer than
    /// [`stop_timeout`](Self::stop_timeout). Meanwhile both together may run more handlers of a kind than one of them would.
    pub async fn run_until_replaced(
        self,
        replaced: impl Future<Output = ()>,
        stop: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        let (tell, asked) = watch::channel(Asked::Nothing);
        let mut running = self.start(asked);
        tokio::pin!(replaced, stop);
        tokio::select! {
            biased;
            () = &mut stop => {}
            () = replaced => {
                tell.send_replace(Asked::ToDrain);
                tokio::select! {
                    biased;
                    () = stop => {}
                    ended = &mut running => return ended,
                }
            }
            ended = &mut running => return ended,
        }
        tell.send_replace(Asked::ToStop);
        running.await
    }

    /// Fails if the settings cannot be used, as a run does at once.
    pub fn check(&self) -> Result<(), Error> {
        self.checked_kinds().map(drop)
    }

    /// Not generic, and its type hidden: what is either is compiled where it is called, and this is a whole engine.
    fn start(self, asked: watch::Receiver<Asked>) -> Hidden<'static, Result<(), Error>> {
        Box::pin(self.run_until_asked(asked))
    }

    async fn run_until_asked(self, mut asked: watch::Receiver<Asked>) -> Result<(), Error> {
        let kinds = self.checked_kinds()?;
        tokio::select! {
            biased;
            () = until(&mut asked, Asked::ToDrain) => return Ok(()),
            checked = self.scheduler.kernel.store.check() => match checked {
                Err(error) if error.is_transient() => {
                    tracing::warn!(
                        %error,
                        "whether the store is fit for this release could not be found out; the worker starts \
                         nevertheless, and works when the store answers"
                    );
                }
                checked => checked?,
            },
        }
        let stop_timeout = self.options.stop_timeout;
        let clock = self.scheduler.kernel.clock.clone();
        let (settle, settlements) = mpsc::unbounded_channel();
        let (note, notes) = mpsc::unbounded_channel();
        let engine = Arc::new(Engine::new(
            Arc::clone(&self.scheduler.kernel),
            kinds,
            self.options,
        ));

        // What takes tasks in, what runs them, and what keeps and ends their claims.
        let mut intake = JoinSet::new();
        for (woken_by, backend) in engine.kernel.router.backends() {
            for _ in 0..arrivals::RECEIVERS {
                clock.spawn_in(
                    &mut intake,
                    arrivals::receive(engine.clone(), woken_by, backend.clone()),
                );
            }
        }
        clock.spawn_in(&mut intake, ready::claim_for_room(engine.clone()));
        clock.spawn_in(&mut intake, sweep::sweep(engine.clone()));
        clock.spawn_in(&mut intake, pausing::watch(engine.clone(), settle.clone()));
        for check_queue in engine.check_queues.values() {
            let follow = following::follow(engine.clone(), Arc::clone(check_queue), settle.clone());
            clock.spawn_in(&mut intake, follow);
            let recheck = recheck::recheck(engine.clone(), Arc::clone(check_queue));
            clock.spawn_in(&mut intake, recheck);
        }
        let mut queues = JoinSet::new();
        for queue in engine.queues.values() {
            let senders = Senders {
                settle: settle.clone(),
                note: note.clone(),
            };
            let run = handlers::run(engine.clone(), Arc::clone(queue), senders);
            clock.spawn_in(&mut queues, run);
        }
        let mut keeping = JoinSet::new();
        clock.spawn_in(&mut keeping, renewing::keep(engine.clone()));
        clock.spawn_in(&mut keeping, renewing::note(engine.clone(), notes));
        let mut settling = JoinSet::new();
        clock.spawn_in(&mut settling, settle::settle(engine.clone(), settlements));

        tokio::select! {
            biased;
            () = until(&mut asked, Asked::ToDrain) => {}
            Some(ended) = intake.join_next() => return Err(defect(ended)),
            Some(ended) = queues.join_next(), if !queues.is_empty() => return Err(defect(ended)),
            Some(ended) = keeping.join_next() => return Err(defect(ended)),
            Some(ended) = settling.join_next() => return Err(defect(ended)),
        }

        engine.stop.enter(Stage::Draining);
        let graceful = async {
            all_ended(&mut intake).await?;
            engine.release_queued(&settle);
            all_ended(&mut queues).await
        };
        let patience = async {
            until(&mut asked, Asked::ToStop).await;
            clock.sleep(stop_timeout).await;
        };
        let ended = tokio::select! {
            biased;
            ended = graceful => Some(ended),
            () = patience => None,
        };
        intake.shutdown().await;
        engine.release_queued(&settle);
        engine.stop.enter(Stage::Stopping);
        // A handler gives its claim back when it has come to its next await. If it never does, the lease ends.
        let stopped = clock.timeout(LAST_WAIT, all_ended(&mut queues)).await;
        queues.shutdown().await;
        drop(settle);
        // With the store away this could take for ever; then the leases end by themselves.
        let settled = clock
            .timeout(stop_timeout.max(LAST_WAIT), all_ended(&mut settling))
            .await;
        engine.kernel.failures.end();
        [ended, stopped, settled].into_iter().flatten().collect()
    }

    fn checked_kinds(&self) -> Result<BTreeMap<Kind, (Policy, Handler)>, Error> {
        if let Some(refused) = &self.refused {
            return Err(refused.once_more());
        }
        let Options {
            name,
            lease,
            sweep_every,
            payload_memory,
            ..
        } = &self.options;
        claimant::check_lease(*lease)?;
        if *payload_memory == 0 {
            return Err(Error::invalid("payload_memory", 0, "allowed is 1 or more"));
        }
        if let Some(name) = name {
            claimant::check_name("name", name)?;
        }
        if sweep_every.is_zero() {
            return Err(Error::invalid("sweep_every", "0s", "allowed is more than zero"));
        }
        let mut kinds = BTreeMap::new();
        for (kind, policy, handler) in &self.kinds {
            kind.check()?;
            policy.check()?;
            if kinds
                .insert(kind.clone(), (policy.clone(), Arc::clone(handler)))
                .is_some()
            {
                return Err(Error::invalid("kind", kind, "allowed is one handler a kind"));
            }
        }
        Ok(kinds)
    }
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds: Vec<_> = self.kinds.iter().map(|(kind, ..)| kind).collect();
        f.debug_struct("Worker")
            .field("kinds", &kinds)
            .finish_non_exhaustive()
    }
}
