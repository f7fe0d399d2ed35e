//! Checks the brokers' health, and acts on it.

use std::sync::Arc;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep, timeout};

use super::clients::{ANSWER_WITHIN, Clients, FIRST_ANSWER_WITHIN};
use super::consumer_lag::LagChange;
use super::creation::{Creation, Queues};
use super::decision::{self, Before, Circuit, Decision, Evidence, Reply};
use super::delay_mode::DelayMode;
use super::delay_support::DelaySupport;
use super::master::MasterState;
use super::masters::Masters;
use super::observation::{BOOT, Checks, MasterCheck, Observation};
use crate::Error;
use crate::rocketmq::{Admin, AskError, ClientFactory, RocketMqOptions, transient};

/// How often brokers are checked while all are healthy.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// How often, while one is not.
const CHECK_AGAIN: Duration = Duration::from_secs(1);
/// The least time between two checks, whatever happens.
const LEAST_PAUSE: Duration = Duration::from_millis(300);

/// Checks the brokers again and again: which are there, which delays each supports, and whether its levels deliver.
///
/// Its futures must run in the client's runtime and must not be abandoned.
pub(super) struct HealthCheck {
    factory: ClientFactory,
    topic: String,
    group: String,
    mode: DelayMode,
    masters: Arc<Masters>,
    clients: Arc<Clients>,
    creation: Creation,
    /// Replaced when a server does not answer, as its connections may be dead then. Locked during a check.
    admin: Mutex<Option<Admin>>,
    closing: Notify,
}

impl HealthCheck {
    pub(super) fn new(
        factory: ClientFactory,
        options: &RocketMqOptions,
        mode: DelayMode,
        masters: Arc<Masters>,
        clients: Arc<Clients>,
    ) -> Self {
        Self {
            factory,
            topic: options.topic.clone(),
            group: options.group.clone(),
            mode,
            creation: Creation::new(options, masters.clone()),
            masters,
            clients,
            admin: Mutex::new(None),
            closing: Notify::new(),
        }
    }

    /// Checks soon after a send has failed, otherwise periodically, until closed.
    pub(super) async fn keep_checking(&self) {
        let next = || async {
            let pause = if self.masters.all_healthy() {
                CHECK_EVERY
            } else {
                CHECK_AGAIN
            };
            sleep(LEAST_PAUSE).await;
            // With or without a failure, it is time for a check.
            let _ = timeout(pause - LEAST_PAUSE, self.masters.send_failure()).await;
        };
        loop {
            tokio::select! {
                () = self.closing.notified() => return,
                () = next() => {}
            }
            self.check().await;
        }
    }

    /// Checks all masters once, or waits for the end of the check that is running.
    pub(super) async fn check(&self) {
        let Ok(mut slot) = self.admin.try_lock() else {
            drop(self.admin.lock().await);
            return;
        };
        let (admin, answer_within) = match slot.take() {
            Some(admin) => (admin, ANSWER_WITHIN),
            None => match Admin::open(&self.factory).await {
                Ok(admin) => (admin, FIRST_ANSWER_WITHIN),
                Err(error) => {
                    tracing::warn!(%error, "the health of RocketMQ brokers cannot be checked, so brokers that fail or come back are noticed late; the check is repeated every few seconds");
                    return;
                }
            },
        };
        let admin = Arc::new(admin);
        let all_answered = self.check_by(&admin, answer_within).await;
        // The checks of single masters have ended, so no other task holds it.
        match Arc::into_inner(admin) {
            Some(admin) if all_answered => *slot = Some(admin),
            Some(admin) => admin.close().await,
            None => {}
        }
    }

    /// Checks whether a master that messages are sent to answers.
    pub(super) async fn probe_any(&self) -> Result<(), Error> {
        let mut last = transient("no broker is sent to");
        for queue in self.masters.routes().queue_of_each_master() {
            match self.clients.probe(&queue).await {
                Ok(()) => return Ok(()),
                Err(error) => {
                    self.masters.open(queue.broker_name());
                    last = error;
                }
            }
        }
        Err(last)
    }

    /// Ends the checks.
    pub(super) async fn close(&self) {
        self.closing.notify_one();
        if let Some(admin) = self.admin.lock().await.take() {
            admin.close().await;
        }
    }

    async fn check_by(&self, admin: &Arc<Admin>, answer_within: Duration) -> bool {
        // Without nameservers everything stays as it was.
        let listed = timeout(answer_within, admin.masters()).await;
        let listed = listed.ok().and_then(Result::ok);
        if let Some(listed) = &listed {
            self.masters.change(|known| {
                for (name, address) in listed {
                    let moved = known.get(name).is_some_and(|master| master.address != *address);
                    if moved || !known.contains_key(name) {
                        known.insert(name.clone(), MasterState::new(address.clone()));
                    }
                }
            });
        }
        let mut queues = self.queues(admin, answer_within).await;
        if let Some(listed) = &listed
            && let Some(found) = &queues
            && self.creation.topic_where_missing(admin, listed, found).await
        {
            queues = self.queues(admin, answer_within).await;
        }
        let mut all_answered = listed.is_some() && queues.is_some();
        for observed in self.observe_each(admin, answer_within).await {
            let name = &observed.name;
            let is_listed = listed.as_ref().is_none_or(|listed| listed.contains_key(name));
            // A master that is listed without the topic has no queues any more.
            let none = is_listed && listed.is_some();
            let queues = queues.as_ref().and_then(|queues| match queues.get(name) {
                None if none => Some(&[][..]),
                queues => queues.map(Vec::as_slice),
            });
            all_answered &= observed.reply() != Reply::Silent;
            self.watch_lag(&observed);
            let has_group = self.creation.group(admin, name, observed.has_group).await;
            self.follow(observed, is_listed, queues, has_group).await;
        }
        all_answered
    }

    /// Returns the queues of the topic by their broker; none, if the nameservers do not answer.
    async fn queues(&self, admin: &Admin, answer_within: Duration) -> Option<Queues> {
        let queues = timeout(answer_within, admin.queues(&self.topic)).await;
        queues.ok().and_then(Result::ok)
    }

    /// Asks each master, all at once.
    async fn observe_each(&self, admin: &Arc<Admin>, answer_within: Duration) -> Vec<Observation> {
        let mut checks = Checks::default();
        let now = Instant::now();
        for (name, master) in self.masters.known().iter_mut() {
            let check = MasterCheck {
                name: name.clone(),
                address: master.address.clone(),
                answer_within,
                boot_timestamp: master.boot_timestamp.clone(),
                queue: master.queue_to_ask_for(now).cloned(),
                is_known: master.delay_support.is_some(),
                group_creation: master.group_creation,
                is_lag_due: master.lag.is_due(now),
                mode: self.mode.clone(),
                topic: self.topic.clone(),
                group: self.group.clone(),
            };
            let admin = admin.clone();
            let if_it_panics = Observation::silent(check.name.clone(), check.group_creation);
            checks.spawn(if_it_panics, Box::pin(async move { check.ask(&admin).await }));
        }
        checks.join_all().await
    }

    /// Logs when delivered wake-ups are not consumed, and when they are consumed again.
    fn watch_lag(&self, observed: &Observation) {
        let Some(progress) = observed.progress else {
            return;
        };
        let mut known = self.masters.known();
        let change = known
            .get_mut(&observed.name)
            .and_then(|master| master.lag.observe(Instant::now(), progress));
        drop(known);
        match change {
            Some(LagChange::Stalled) => tracing::warn!(
                broker = %observed.name, topic = self.topic, group = self.group, waiting = progress.lag,
                "a broker delivers wake-ups and no worker consumes them, so each task waits for the sweep, half a second or \
                 more: see that workers run, and that their account may subscribe to the topic in the group"
            ),
            Some(LagChange::Resumed) => {
                tracing::info!(broker = %observed.name, group = self.group, "the wake-ups of a broker are consumed again");
            }
            None => {}
        }
    }

    /// Updates a master's state by what was observed, and acts on it.
    async fn follow(
        &self,
        observed: Observation,
        is_listed: bool,
        queues: Option<&[MessageQueue]>,
        has_group: bool,
    ) {
        let reply = observed.reply();
        let name = observed.name;
        let delay_support = observed
            .delay_support
            .and_then(|reported| self.mode.or_assumed(&name, reported));
        if let Some(DelaySupport::Unsupported(why)) = &delay_support {
            tracing::warn!(
                broker = %name, %why,
                "a broker does not support timer messages, so nothing is sent to it; others, or the precise backend, carry its \
                 wake-ups: enable its timers, or use RocketMqBackend"
            );
        }
        let now = Instant::now();
        let judged = self.masters.change(|known| {
            let master = known.get_mut(&name)?;
            if let Some(queues) = queues {
                master.set_queues(queues);
            }
            master.group_creation = observed.group_creation;
            let is_restarted = delay_support.is_some_and(|delay_support| {
                let stats = observed.stats.as_ref().ok().and_then(Option::as_ref);
                let boot_timestamp = stats.and_then(|stats| stats.read(BOOT));
                master.restarted(boot_timestamp, delay_support)
            });
            let seen = Evidence {
                reply,
                is_listed,
                is_restarted,
                has_group,
                has_queue: !master.queues.is_empty(),
            };
            let before = Before {
                circuit: master.circuit,
                was_silent: std::mem::replace(&mut master.is_silent, reply == Reply::Silent),
                probe_is_due: master.probe_backoff.is_due(now),
            };
            if let Ok(Some(stats)) = &observed.stats {
                for (level, is_stuck) in master.observe_levels(&name, now, stats) {
                    if is_stuck {
                        tracing::warn!(
                            broker = %name, ?level,
                            "a delay level of a broker has stopped delivering, so tasks in it wait for the sweep, half a \
                             second or more; nothing is sent to it until it delivers again: see the broker's log, and its disk"
                        );
                    } else {
                        tracing::info!(broker = %name, ?level, "a delay level of a broker delivers again");
                    }
                }
            }
            let decision = decision::decide(before, seen);
            match decision {
                Decision::Forget => {
                    known.remove(&name);
                    return None;
                }
                Decision::Open => master.circuit = Circuit::Open,
                Decision::Unreachable => master.circuit = Circuit::Unreachable,
                Decision::Keep | Decision::Probe => {}
            }
            Some((decision, before.circuit, seen, master.queues.first().cloned()))
        });
        match (judged, observed.stats) {
            (
                Some((Decision::Unreachable, ..)),
                Err(AskError::Unreachable(error) | AskError::Refused(error)),
            ) => {
                tracing::warn!(
                    broker = %name, %error,
                    "a broker does not answer, so nothing is sent to it until it does; others, or the precise backend, carry its \
                     wake-ups, and tasks whose wake-ups are on it wait for the sweep: see that it is up"
                );
            }
            (Some((Decision::Probe, circuit, seen, Some(queue))), _) => {
                self.probe(&name, &queue, circuit, seen).await;
            }
            _ => {}
        }
    }

    /// Probes whether messages can be sent to a master; if so they are from now on.
    async fn probe(&self, name: &CheetahString, queue: &MessageQueue, circuit: Circuit, seen: Evidence) {
        let answered = self.clients.probe(queue).await.is_ok();
        // Without a nameserver fresh clients lead nowhere, and those in use may still work.
        if decision::needs_fresh_clients(circuit, seen, answered)
            && let Err(error) = self.clients.reconnect(queue).await
            && !answered
        {
            tracing::warn!(broker = %name, %error, "a broker is up again and takes no messages yet, so others, or the precise backend, carry its wake-ups; it is probed again every second");
            self.masters.open(name);
            return;
        }
        if !circuit.is_sent_to() {
            tracing::info!(broker = %name, "a broker receives wake-ups again");
        }
        self.masters.change(|known| {
            if let Some(master) = known.get_mut(name) {
                master.circuit = decision::after_probe(circuit, seen);
            }
        });
    }
}
