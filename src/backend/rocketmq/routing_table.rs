//! Chooses a queue for each delay.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;

use super::delay_support::DelaySupport;
use super::master::MasterState;
use crate::backend::{Delays, Reach};
use crate::defaults;
use crate::delay::LevelTable;

/// The queues by the delays that their masters hold.
#[derive(Debug)]
pub(super) struct RoutingTable {
    pub(super) reach: Reach,
    /// For timers: by the longest delay that all of the masters hold.
    by_delay: BTreeMap<Duration, Vec<Destination>>,
    /// Where the next choice begins. Handed on to the next table: one lasts for seconds, and may see a single choice.
    pub(super) next: Arc<AtomicUsize>,
}

/// A queue of a master, and the property of a message in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Destination {
    pub(super) property: DelayProperty,
    pub(super) queue: MessageQueue,
}

/// The property by which a master holds a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DelayProperty {
    /// The level's number on that master.
    Level(usize),
    /// The delay itself.
    Timer,
}

impl Destination {
    pub(super) fn master(&self) -> &CheetahString {
        self.queue.broker_name()
    }
}

impl RoutingTable {
    /// Makes the routes of the usable masters; without any, the reach stays as in `last`.
    pub(super) fn of(
        known: &BTreeMap<CheetahString, MasterState>,
        last: &Reach,
        next: Arc<AtomicUsize>,
    ) -> Self {
        let mut by_delay: BTreeMap<Duration, Vec<Destination>> = BTreeMap::new();
        let mut tables = Vec::new();
        let mut timers: Option<(Duration, Vec<Destination>)> = None;
        for master in known.values().filter(|master| master.circuit.is_sent_to()) {
            let Some(support) = master
                .delay_support
                .as_ref()
                .filter(|_| !master.queues.is_empty())
            else {
                continue;
            };
            let by = |property| {
                let queues = master.queues.iter().cloned();
                queues.map(move |queue| Destination { property, queue })
            };
            match support {
                DelaySupport::Levels(table) => {
                    tables.push(table);
                    // Each delay once: of equal levels the first is as good as the others, unless it is stuck.
                    let mut numbers = BTreeMap::new();
                    for level in table.levels().filter(|level| !master.is_stuck(level.number)) {
                        numbers.entry(level.delay).or_insert(level.number);
                    }
                    for (delay, number) in numbers {
                        let routes = by_delay.entry(delay).or_default();
                        routes.extend(by(DelayProperty::Level(number)));
                    }
                }
                DelaySupport::Timers(longest) => {
                    let (least, routes) = timers.get_or_insert((*longest, Vec::new()));
                    // So that each can stand in for each.
                    *least = (*least).min(*longest);
                    routes.extend(by(DelayProperty::Timer));
                }
                DelaySupport::Unsupported(_) => {}
            }
        }
        let reach = match &timers {
            Some((max, _)) => Reach::Any { max: *max },
            None if by_delay.is_empty() => last.clone(),
            None => Reach::Levels(table_of(&by_delay, &tables)),
        };
        by_delay.extend(timers);
        for routes in by_delay.values_mut() {
            // One master after the other, not one queue after the other.
            routes.sort_by(|one, other| {
                (one.queue.queue_id(), one.master()).cmp(&(other.queue.queue_id(), other.master()))
            });
        }
        Self {
            reach,
            by_delay,
            next,
        }
    }

    /// Returns the available delays, and how late they usually are. Levels are the brokers' own table, if all brokers
    /// have the same and all of it is available.
    pub(super) fn delays(&self) -> Delays {
        Delays {
            usual_lateness: match self.reach {
                Reach::Levels(_) => defaults::LEVELS_LATENESS,
                Reach::Any { .. } => defaults::TIMERS_LATENESS,
            },
            reach: self.reach.clone(),
        }
    }

    /// Checks that a delay is available; if not, says which are.
    pub(super) fn check(&self, delay: Duration) -> Result<(), String> {
        match &self.reach {
            Reach::Levels(table) if table.level_of(delay).is_none() => {
                Err(format!("allowed are the brokers' levels: {table}"))
            }
            Reach::Any { max } if delay > *max => {
                Err(format!("allowed is at most {max:?}, the brokers' longest timer"))
            }
            Reach::Levels(_) | Reach::Any { .. } => Ok(()),
        }
    }

    /// Says whether any delay is available.
    pub(super) fn has_any(&self) -> bool {
        !self.by_delay.is_empty()
    }

    /// Returns a queue of each master in the table.
    pub(super) fn queue_of_each_master(&self) -> Vec<MessageQueue> {
        let routes = self.by_delay.values().flatten();
        let each: BTreeMap<_, _> = routes
            .map(|destination| (destination.master(), &destination.queue))
            .collect();
        each.into_values().cloned().collect()
    }

    /// Chooses where to send a wake-up that waits for `delay`: each time another queue, and not one of the master
    /// `except`.
    pub(super) fn choose(&self, delay: Duration, except: Option<&CheetahString>) -> Option<&Destination> {
        let routes = match self.reach {
            Reach::Levels(_) => self.by_delay.get(&delay)?,
            Reach::Any { .. } => self.by_delay.range(delay..).next()?.1,
        };
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        (0..routes.len())
            .map(|step| &routes[start.wrapping_add(step) % routes.len()])
            .find(|destination| Some(destination.master()) != except)
    }
}

fn table_of(by_delay: &BTreeMap<Duration, Vec<Destination>>, tables: &[&LevelTable]) -> LevelTable {
    let offered = LevelTable::of(by_delay.keys().copied().collect());
    // The brokers' own, unless some of it is stuck.
    LevelTable::of_all(tables.iter().copied())
        .filter(|table| table.same_delays(&offered))
        .unwrap_or(offered)
}
