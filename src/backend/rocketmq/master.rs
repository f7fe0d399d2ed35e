//! Holds the state of one master.

use std::collections::BTreeMap;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;
use tokio::time::Instant;

use super::backlog::{self, Backlog};
use super::consumer_lag::LagMonitor;
use super::decision::Circuit;
use super::delay_support::DelaySupport;
use crate::clock::backoff::Backoff;
use crate::delay::LevelTable;
use crate::observe::metrics::level_is_stuck;
use crate::rocketmq::BrokerInfo;

/// When a refused creation is tried again.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// How often a master is asked for its runtime statistics while it is healthy, which cost it much (see
/// `Admin::runtime_stats`).
const STATS_EVERY: Duration = Duration::from_secs(30);

/// The state of one master between two health checks.
pub(super) struct MasterState {
    pub(super) address: CheetahString,
    /// Changes with a restart; none where it does not report it.
    pub(super) boot_timestamp: Option<String>,
    pub(super) delay_support: Option<DelaySupport>,
    /// The writable queues of the topic.
    pub(super) queues: Vec<MessageQueue>,
    /// Whether messages are sent to it.
    pub(super) circuit: Circuit,
    /// When creating the topic there is tried again.
    pub(super) topic_backoff: Backoff,
    /// Whether the consumer group must be created there.
    pub(super) group_creation: GroupCreation,
    /// When creating the consumer group there is tried again.
    pub(super) group_backoff: Backoff,
    /// When it is probed, after it took nothing.
    pub(super) probe_backoff: Backoff,
    /// Whether its delivered messages are consumed.
    pub(super) lag: LagMonitor,
    /// Whether the last health check had no answer.
    pub(super) is_silent: bool,
    /// When it last reported its runtime statistics.
    stats_at: Option<Instant>,
    /// By level number; only of levels that have held something.
    backlogs: BTreeMap<usize, Backlog>,
}

/// Where the consumer group of a master is created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupCreation {
    /// Not asked yet.
    Unknown,
    /// The broker creates it, or does not say.
    Automatic,
    /// The client has to create it, and the broker says whether it exists.
    Manual,
}

impl MasterState {
    pub(super) fn new(address: CheetahString) -> Self {
        Self {
            address,
            boot_timestamp: None,
            delay_support: None,
            queues: Vec::new(),
            circuit: Circuit::CLOSED,
            topic_backoff: BACKOFF,
            group_creation: GroupCreation::Unknown,
            group_backoff: BACKOFF,
            probe_backoff: BACKOFF,
            lag: LagMonitor::default(),
            is_silent: false,
            stats_at: None,
            backlogs: BTreeMap::new(),
        }
    }

    /// Records that it took something of a batch.
    pub(super) fn took(&mut self) {
        self.circuit = self.circuit.after_success();
        self.probe_backoff.succeeded();
    }

    /// Records that it took nothing of a batch; says whether sending to it stops.
    pub(super) fn missed(&mut self, now: Instant) -> bool {
        self.turn(self.circuit.after_failure(), now)
    }

    /// Records that it takes no messages; says whether they were sent to it until now.
    pub(super) fn open(&mut self, now: Instant) -> bool {
        self.turn(self.circuit.opened(), now)
    }

    /// Returns a queue to ask for, to see that it answers, if nothing else has to be asked.
    pub(super) fn queue_to_ask_for(&self, now: Instant) -> Option<&MessageQueue> {
        let is_fresh = |at| now.saturating_duration_since(at) < STATS_EVERY;
        let is_well = self.circuit == Circuit::CLOSED
            && !self.is_silent
            && self.delay_support.is_some()
            && self.stats_at.is_some_and(is_fresh)
            && !self.backlogs.values().any(Backlog::is_stuck);
        self.queues.first().filter(|_| is_well)
    }

    fn turn(&mut self, circuit: Circuit, now: Instant) -> bool {
        let was_sent_to = self.circuit.is_sent_to();
        self.circuit = circuit;
        let has_opened = was_sent_to && !circuit.is_sent_to();
        if has_opened {
            self.probe_backoff.failed(now);
        }
        has_opened
    }

    pub(super) fn set_queues(&mut self, queues: &[MessageQueue]) {
        self.queues = queues.to_vec();
        if !queues.is_empty() {
            self.topic_backoff.succeeded();
        }
    }

    /// Reads how far each level has been delivered; returns which have become stuck, and which no longer are.
    pub(super) fn observe_levels(
        &mut self,
        name: &str,
        now: Instant,
        stats: &BrokerInfo,
    ) -> Vec<(Duration, bool)> {
        self.stats_at = Some(now);
        let mut changed = Vec::new();
        for level in self
            .delay_support
            .iter()
            .filter_map(DelaySupport::table)
            .flat_map(LevelTable::levels)
        {
            let figure = stats.get(&format!("scheduleMessageOffset_{}", level.number));
            let Some((delivered, reaches)) = figure.and_then(backlog::read) else {
                continue;
            };
            let backlog = self
                .backlogs
                .entry(level.number)
                .or_insert_with(|| Backlog::new(level.delay));
            let was = backlog.is_stuck();
            let is = backlog.observe(now, delivered, reaches);
            level_is_stuck(name, level, is);
            if was != is {
                changed.push((level.delay, is));
            }
        }
        changed
    }

    /// Records which delays it supports, since it is new here or was restarted: all earlier state is dropped. Says
    /// whether clients may have to reconnect; not so, if it merely had not reported its start time before.
    pub(super) fn restarted(&mut self, boot_timestamp: Option<String>, delay_support: DelaySupport) -> bool {
        // A master that is new here may have a topic that is newer than the consumer.
        let is_restarted = self.boot_timestamp.is_some() || self.delay_support.is_none();
        self.boot_timestamp = boot_timestamp;
        self.delay_support = Some(delay_support);
        self.group_creation = GroupCreation::Unknown;
        self.backlogs.clear();
        is_restarted
    }

    pub(super) fn is_stuck(&self, number: usize) -> bool {
        self.backlogs.get(&number).is_some_and(Backlog::is_stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Says whether all statistics are due for a healthy master after `change`, which reported them so many seconds
    /// ago.
    fn are_stats_due(change: impl FnOnce(&mut MasterState), seconds: u64) -> bool {
        let now = Instant::now();
        let mut master = MasterState::new("127.0.0.1:1".into());
        master.restarted(None, DelaySupport::Levels("1s".parse().unwrap()));
        master.set_queues(&[MessageQueue::from_parts("t", "a", 0)]);
        master.observe_levels("a", now, &BrokerInfo::default());
        change(&mut master);
        master
            .queue_to_ask_for(now + Duration::from_secs(seconds))
            .is_none()
    }

    #[test]
    fn a_master_that_is_well_is_seldom_asked_for_what_costs_it_much() {
        assert!(!are_stats_due(|_| (), 29));
        assert!(are_stats_due(|_| (), 30));
        assert!(are_stats_due(|master| master.is_silent = true, 1));
        assert!(are_stats_due(|master| master.circuit = Circuit::HalfOpen, 1));
        assert!(are_stats_due(|master| _ = master.missed(Instant::now()), 1));
        assert!(are_stats_due(|master| master.stats_at = None, 1));
        assert!(are_stats_due(|master| master.delay_support = None, 1));
        assert!(are_stats_due(|master| master.queues.clear(), 1));
        let is_stuck = |master: &mut MasterState| {
            for seconds in [0, 60] {
                let now = Instant::now() + Duration::from_secs(seconds);
                let stats = BrokerInfo::from([("scheduleMessageOffset_1", "4,9")]);
                master.observe_levels("a", now, &stats);
            }
        };
        assert!(are_stats_due(is_stuck, 1));
    }
}
