//! Takes wake-ups from Redis for the receivers of this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::Instant;

use super::hints::{HintSet, Hints};
use super::in_flight::InFlight;
use super::inbox::Inbox;
use super::membership::Membership;
use super::shards::Shard;
use super::taking::{Polled, Taking};
use super::watch::Watch;
use crate::Error;
use crate::clock::backoff::{Backoff, jittered};
use crate::redis::listen;

/// How long a shard is not polled though a message would announce an earlier wake-up: messages are not reliable. The
/// more shards there are, the longer, so that their number does not decide how often an idle server is asked.
const POLL_AGAIN: Duration = Duration::from_secs(8);
/// How many shards are polled in that time; each further one adds to it.
const POLLED_SHARDS: u32 = 4;
/// The same, where the server does not allow it to listen.
const POLL_AGAIN_UNNOTIFIED: Duration = Duration::from_millis(250);
/// The least time between two heartbeats, whatever hints come.
const HEARTBEAT_PAUSE: Duration = Duration::from_millis(100);

/// Polls for due wake-ups when receivers want some, and sleeps until the next is due in a shard that it watches.
pub(super) struct Consumer {
    pub(super) taking: Arc<Taking>,
    pub(super) inbox: Arc<Inbox>,
    /// The name of this process among those that receive; as long as this runs, kept only here.
    pub(super) membership: Membership,
    /// Whether other processes were notified that this one receives.
    pub(super) is_known: Arc<AtomicBool>,
}

impl Consumer {
    /// Runs until it is aborted.
    pub(super) async fn run(self) {
        let Self {
            taking,
            inbox,
            membership,
            is_known,
        } = self;
        let _closing = CloseOnDrop(inbox.clone());
        let hints = Arc::new(Hints::default());
        // Ends with this task.
        let mut listening = JoinSet::new();
        let (link, channel) = (taking.sender.link.clone(), taking.sender.names.hints.clone());
        let listener = hints.clone();
        listening.spawn(async move { listen(link.address(), link.role(), &channel, listener).await });
        let mut poller = Poller {
            taking,
            inbox,
            membership,
            is_known,
            hints,
            watches: BTreeMap::new(),
            heartbeat: Heartbeat {
                next: Instant::now(),
                began: None,
                is_on: false,
                backoff: Backoff::CALLS,
            },
            in_flight: InFlight::default(),
            answers: JoinSet::new(),
        };
        poller.run().await;
    }
}

/// Makes receivers fail rather than wait for ever, however the task ends.
struct CloseOnDrop(Arc<Inbox>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.close();
    }
}

struct Poller {
    taking: Arc<Taking>,
    inbox: Arc<Inbox>,
    membership: Membership,
    is_known: Arc<AtomicBool>,
    hints: Arc<Hints>,
    watches: BTreeMap<Shard, Watch>,
    heartbeat: Heartbeat,
    in_flight: InFlight,
    /// Each shard has a poll of its own, so that a node that hangs holds up its own shards only.
    answers: JoinSet<Answer>,
}

/// When to send the next heartbeat, by which others know that this process receives.
struct Heartbeat {
    next: Instant,
    began: Option<Instant>,
    is_on: bool,
    backoff: Backoff,
}

enum Answer {
    Heartbeat(Result<(i64, Vec<String>), Error>),
    Poll {
        shard: Shard,
        began: Instant,
        taken: Result<Polled, Error>,
    },
}

impl Poller {
    async fn run(&mut self) {
        let (inbox, hints) = (self.inbox.clone(), self.hints.clone());
        loop {
            let wanted = inbox.wanted();
            if wanted > 0 {
                self.apply(hints.take());
                self.send_heartbeat();
                self.poll(wanted);
            }
            // Without receivers here, other processes should watch: so this one sends no heartbeat.
            let next = (wanted > 0).then(|| self.next(wanted));
            tokio::select! {
                biased;
                Some(answer) = self.answers.join_next() => {
                    // A poll that panicked would be a defect, and its shard would never be polled again.
                    let Ok(answer) = answer else { return };
                    self.on_answer(answer);
                }
                () = inbox.wants_more() => {}
                () = hints.changed(), if wanted > 0 => {}
                () = sleep_until(next) => {}
            }
        }
    }

    /// Applies hints, where they concern a shard that this process may poll.
    fn apply(&mut self, hints: HintSet) {
        let HintSet {
            due,
            more,
            members,
            missed,
        } = hints;
        let now = Instant::now();
        let mut is_unknown = false;
        for (shard, at) in due {
            match self.watches.get_mut(&shard) {
                Some(watch) if watch.is_mine() => watch.poll_at(at),
                Some(_) => {}
                None => is_unknown = true,
            }
        }
        for shard in more {
            match self.watches.get_mut(&shard) {
                Some(watch) => watch.poll_at(now),
                None => is_unknown = true,
            }
        }
        if missed {
            let mine = self.watches.values_mut().filter(|watch| watch.is_mine());
            mine.for_each(|watch| watch.poll_at(now));
        }
        if members || missed || is_unknown {
            let earliest = self.heartbeat.began.map_or(now, |began| began + HEARTBEAT_PAUSE);
            self.heartbeat.next = self.heartbeat.next.min(earliest.max(now));
        }
    }

    fn send_heartbeat(&mut self) {
        let now = Instant::now();
        if self.heartbeat.is_on || self.heartbeat.next > now {
            return;
        }
        self.heartbeat.is_on = true;
        self.heartbeat.began = Some(now);
        self.heartbeat.next = now + self.membership.every();
        self.is_known.store(true, Ordering::Relaxed);
        let taking = self.taking.clone();
        let call = self
            .membership
            .heartbeat(&taking.sender.names, &taking.sender.shards, true);
        self.answers
            .spawn(async move { Answer::Heartbeat(Membership::send(call, &taking.sender.link).await) });
    }

    /// Polls shards whose time has come, for up to so many wake-ups together with those that are being polled.
    fn poll(&mut self, wanted: usize) {
        let now = Instant::now();
        let mut capacity = self.in_flight.room(wanted, now);
        if capacity == 0 {
            return;
        }
        let most = self.in_flight.most_of_one(now);
        let is_alone = self.membership.is_alone();
        let watches = self.watches.iter_mut();
        let mut due: Vec<_> = watches
            .filter(|(_, watch)| watch.next().is_some_and(|next| next <= now))
            .collect();
        due.sort_by_key(|(_, watch)| watch.urgency());
        for (&shard, watch) in due {
            if capacity == 0 {
                return;
            }
            // One wake-up is enough to see that the node is back.
            let most = if watch.has_failed() { 1 } else { most };
            let max = capacity.min(most);
            capacity -= max;
            self.in_flight.begin(shard, max, now);
            watch.begin();
            let taking = self.taking.clone();
            self.answers.spawn(async move {
                let taken = taking.take(shard, max, is_alone).await;
                Answer::Poll {
                    shard,
                    began: now,
                    taken,
                }
            });
        }
    }

    /// Returns when there is something to do without any event.
    fn next(&self, wanted: usize) -> Instant {
        let now = Instant::now();
        let has_capacity = self.in_flight.room(wanted, now) > 0;
        let heartbeat = (!self.heartbeat.is_on).then_some(self.heartbeat.next);
        let polls = self
            .watches
            .values()
            .filter_map(|watch| watch.next().filter(|_| has_capacity));
        let slow = self.in_flight.next_slow(now).filter(|_| !has_capacity);
        polls
            .chain(heartbeat)
            .chain(slow)
            .min()
            .unwrap_or(now + POLL_AGAIN)
    }

    fn on_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Heartbeat(answer) => self.on_heartbeat(answer),
            Answer::Poll { shard, began, taken } => {
                self.in_flight.end(shard);
                self.on_poll(shard, began, taken);
            }
        }
    }

    fn on_heartbeat(&mut self, answer: Result<(i64, Vec<String>), Error>) {
        self.heartbeat.is_on = false;
        let shards = &self.taking.sender.shards;
        let answer = answer.and_then(|(kept, members)| {
            let number = shards.record(&self.taking.sender.link, kept)?;
            Ok((number, members))
        });
        let (number, members) = match answer {
            Ok(answer) => answer,
            Err(error) => {
                let (failures, now) = (self.heartbeat.backoff.failures(), Instant::now());
                self.heartbeat.next = now + jittered(self.heartbeat.backoff.failed(now));
                self.failed(failures, error);
                return;
            }
        };
        self.heartbeat.backoff.succeeded();
        self.membership.update(members);
        // Another number than before, if a server has lost everything and another process wrote it first.
        self.watches
            .retain(|shard, watch| watch.is_on() || shard.0 < number);
        for shard in Shard::all(number) {
            let is_mine = self.membership.watches(shard);
            let watch = self.watches.entry(shard).or_insert_with(Watch::new);
            watch.assign(is_mine, Instant::now());
        }
    }

    fn on_poll(&mut self, shard: Shard, began: Instant, taken: Result<Polled, Error>) {
        let (longest, now) = (self.longest(), Instant::now());
        let Some(watch) = self.watches.get_mut(&shard) else {
            return;
        };
        match taken {
            Ok(Polled { wait, arrivals }) => {
                watch.polled(now, wait, longest);
                if !arrivals.is_empty() {
                    self.inbox.put(arrivals, began + self.taking.lease);
                }
            }
            Err(error) => {
                let failures = watch.failed(now);
                self.failed(failures, error);
            }
        }
    }

    fn failed(&self, failures: u32, error: Error) {
        if !error.is_transient() {
            self.inbox.fail(error);
        } else if failures == 0 {
            tracing::warn!(
                %error,
                "wake-ups cannot be received from Redis, so tasks wait for the sweep, up to half a second; it is \
                 tried again: see that the server is up"
            );
        }
    }

    /// Returns how long a shard is not polled at the most.
    fn longest(&self) -> Duration {
        if !self.hints.are_live() {
            return POLL_AGAIN_UNNOTIFIED;
        }
        let shards = u32::try_from(self.watches.len()).unwrap_or(u32::MAX);
        let again = POLL_AGAIN.saturating_mul(shards.div_ceil(POLLED_SHARDS));
        // No message announces leases that begin while this process sleeps.
        again.min(self.taking.lease.max(POLL_AGAIN_UNNOTIFIED))
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
