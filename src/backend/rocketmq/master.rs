//! What is known of one master.

use std::collections::BTreeMap;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;
use tokio::time::Instant;

use super::backlog::{self, Backlog};
use super::consumer_lag::LagMonitor;
use super::decision::Circuit;
use super::delay_support::DelaySupport;
use crate::backoff::Backoff;
use crate::delay::LevelTable;
use crate::metrics::level_is_stuck;
use crate::rocketmq::BrokerInfo;

/// When something that a master refused is tried again.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// What is known of one master between two health checks.
pub(super) struct MasterState {
    pub(super) address: CheetahString,
    /// By which a restart is known; none where it does not report it.
    pub(super) boot_timestamp: Option<String>,
    pub(super) delay_support: Option<DelaySupport>,
    /// Those of the topic that may be written to.
    pub(super) queues: Vec<MessageQueue>,
    /// Whether it is sent to.
    pub(super) circuit: Circuit,
    /// When the topic is to be made there again that could not be.
    pub(super) topic_backoff: Backoff,
    /// Whether the consumer group must be made there.
    pub(super) group_creation: GroupCreation,
    /// When the consumer group is to be made there again that could not be.
    pub(super) group_backoff: Backoff,
    /// When it is probed, since it took nothing and has taken nothing yet.
    pub(super) probe_backoff: Backoff,
    /// Whether what it delivers is consumed.
    pub(super) lag: LagMonitor,
    /// Whether the last health check had no answer.
    pub(super) is_silent: bool,
    /// By level number; only of levels that have held something.
    backlogs: BTreeMap<usize, Backlog>,
}

/// Who makes the consumer group of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GroupCreation {
    /// It has not been asked.
    Unknown,
    /// It does, or does not say so.
    Automatic,
    /// Whoever needs it, and it says whether it is there.
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
            backlogs: BTreeMap::new(),
        }
    }

    /// It took something of a batch.
    pub(super) fn took(&mut self) {
        self.circuit = self.circuit.after_success();
        self.probe_backoff.succeeded();
    }

    /// It took nothing of a batch; says whether it is no longer sent to.
    pub(super) fn missed(&mut self, now: Instant) -> bool {
        self.turn(self.circuit.after_failure(), now)
    }

    /// It takes no messages; says whether it was sent to until now.
    pub(super) fn open(&mut self, now: Instant) -> bool {
        self.turn(self.circuit.opened(), now)
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

    /// Reads how far each level has been delivered; says which have become stuck, and which no longer are.
    pub(super) fn observe_levels(
        &mut self,
        name: &str,
        now: Instant,
        stats: &BrokerInfo,
    ) -> Vec<(Duration, bool)> {
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

    /// It has reported which delays it supports, since it is new here or was started again: nothing of before is true.
    /// Says whether clients may have to connect anew; not so, if it merely had not reported before when it was started.
    pub(super) fn restarted(&mut self, boot_timestamp: Option<String>, delay_support: DelaySupport) -> bool {
        // One that is new here may have a topic that is newer than the consumer.
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
