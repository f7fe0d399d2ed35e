//! One master.

use std::collections::BTreeMap;
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;
use tokio::time::Instant;

use super::backlog::{self, Backlog};
use super::backoff::Backoff;
use super::flow::Flow;
use super::holding::Holding;
use crate::LevelTable;
use crate::misses::Misses;
use crate::rocketmq::Told;

/// What is known of a master.
pub(super) struct Master {
    pub(super) address: CheetahString,
    /// By which a restart is known; none where it does not tell.
    pub(super) boot: Option<String>,
    pub(super) holding: Option<Holding>,
    /// Those of the topic that may be written to.
    pub(super) queues: Vec<MessageQueue>,
    pub(super) health: Health,
    /// Batches in a row of which it took nothing.
    pub(super) misses: Misses,
    /// When the topic is to be made there again that could not be.
    pub(super) making: Backoff,
    /// Whether the consumer group is to be looked for there.
    pub(super) groups: Groups,
    /// When the consumer group is to be made there again that could not be.
    pub(super) grouping: Backoff,
    /// When it is tried again, since it took nothing and has taken nothing yet.
    pub(super) trial: Backoff,
    /// Whether what it delivers is taken.
    pub(super) flow: Flow,
    /// Whether the last look had no answer.
    pub(super) silent: bool,
    /// By level number; only of levels that have held something.
    backlogs: BTreeMap<usize, Backlog>,
}

/// Whether a master is sent to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Well,
    /// It takes no messages.
    Unwell,
    /// It did not answer at all, so connections to it may be worn.
    Absent,
}

/// Who makes the consumer group of a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Groups {
    /// It has not been asked.
    Unknown,
    /// It does, or does not say so.
    Itself,
    /// Whoever needs it, and it says whether it is there.
    Others,
}

impl Master {
    pub(super) fn new(address: CheetahString) -> Self {
        Self {
            address,
            boot: None,
            holding: None,
            queues: Vec::new(),
            health: Health::Well,
            misses: Misses::default(),
            making: Backoff::default(),
            groups: Groups::Unknown,
            grouping: Backoff::default(),
            trial: Backoff::default(),
            flow: Flow::default(),
            silent: false,
            backlogs: BTreeMap::new(),
        }
    }

    /// Reads how far each level has been delivered; says which have become stuck, and which no longer are.
    pub(super) fn look_at_levels(&mut self, now: Instant, figures: &Told) -> Vec<(Duration, bool)> {
        let mut changed = Vec::new();
        for level in self
            .holding
            .iter()
            .filter_map(Holding::table)
            .flat_map(LevelTable::levels)
        {
            let figure = figures.get(&format!("scheduleMessageOffset_{}", level.number));
            let Some((delivered, reaches)) = figure.and_then(backlog::read) else {
                continue;
            };
            let backlog = self
                .backlogs
                .entry(level.number)
                .or_insert_with(|| Backlog::new(level.delay));
            let was = backlog.is_stuck();
            let is = backlog.look(now, delivered, reaches);
            if was != is {
                changed.push((level.delay, is));
            }
        }
        changed
    }

    /// It was started again, or turns out to hold messages in another way: nothing of before is true.
    pub(super) fn restarted(&mut self, boot: Option<String>, holding: Holding) {
        self.boot = boot;
        self.holding = Some(holding);
        self.groups = Groups::Unknown;
        self.backlogs.clear();
    }

    pub(super) fn is_stuck(&self, number: usize) -> bool {
        self.backlogs.get(&number).is_some_and(Backlog::is_stuck)
    }
}
