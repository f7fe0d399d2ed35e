//! The delays that can be had, and where.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;

use super::holding::Holding;
use super::master::{Health, Master};
use crate::backend::{Delays, Reach};
use crate::{LevelTable, defaults};

/// The delays that can be had, and where.
#[derive(Debug)]
pub(super) struct Offers {
    pub(super) reach: Reach,
    /// Of timers: by the longest delay that all of the masters hold.
    by_delay: BTreeMap<Duration, Vec<Offer>>,
    next: AtomicUsize,
}

/// A way of a master to hold a message, and one of its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) way: Way,
    pub(super) queue: MessageQueue,
}

/// What a message must say so that a master holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// The level's number on that master.
    Level(usize),
    /// The delay itself.
    Timer,
}

impl Offer {
    pub(super) fn master(&self) -> &CheetahString {
        self.queue.broker_name()
    }
}

impl Offers {
    /// What the well masters offer; with none, `last` is what the reach stays.
    pub(super) fn of(known: &BTreeMap<CheetahString, Master>, last: &Reach) -> Self {
        let mut by_delay: BTreeMap<Duration, Vec<Offer>> = BTreeMap::new();
        let mut tables = Vec::new();
        let mut timers: Option<(Duration, Vec<Offer>)> = None;
        for master in known.values().filter(|master| master.health == Health::Well) {
            let table = match master.holding.as_ref().filter(|_| !master.queues.is_empty()) {
                Some(Holding::Levels(table)) => table,
                Some(Holding::Timers(longest)) => {
                    let (least, offers) = timers.get_or_insert_default();
                    // So that each can stand in for each.
                    *least = if offers.is_empty() {
                        *longest
                    } else {
                        *longest.min(least)
                    };
                    let queues = master.queues.iter().cloned();
                    offers.extend(queues.map(|queue| Offer {
                        way: Way::Timer,
                        queue,
                    }));
                    continue;
                }
                Some(Holding::Not(_)) | None => continue,
            };
            tables.push(table);
            // Each delay once: of equal levels the first is as good as the others, unless it is stuck.
            let mut offered = BTreeMap::new();
            for level in table.levels().filter(|level| !master.is_stuck(level.number)) {
                offered.entry(level.delay).or_insert(level.number);
            }
            for (delay, number) in offered {
                let queues = master.queues.iter().cloned();
                by_delay
                    .entry(delay)
                    .or_default()
                    .extend(queues.map(|queue| Offer {
                        way: Way::Level(number),
                        queue,
                    }));
            }
        }
        let reach = match &timers {
            Some((max, _)) => Reach::Any { max: *max },
            None if by_delay.is_empty() => last.clone(),
            None => Reach::Levels(table_of(&by_delay, &tables)),
        };
        by_delay.extend(timers);
        for offers in by_delay.values_mut() {
            // One master after the other, not one queue after the other.
            offers.sort_by(|one, other| {
                (one.queue.queue_id(), one.master()).cmp(&(other.queue.queue_id(), other.master()))
            });
        }
        Self {
            reach,
            by_delay,
            next: AtomicUsize::new(0),
        }
    }

    /// The delays that can be had, and how late that usually is. Levels are the brokers' own table, where they have the
    /// same and all of it can be had.
    pub(super) fn delays(&self) -> Delays {
        Delays {
            usual_lateness: match self.reach {
                Reach::Levels(_) => defaults::LEVELS_LATENESS,
                Reach::Any { .. } => defaults::TIMERS_LATENESS,
            },
            reach: self.reach.clone(),
        }
    }

    /// Whether it is one of the delays that can be had; if not, which are.
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

    /// Whether anything can be had.
    pub(super) fn any(&self) -> bool {
        !self.by_delay.is_empty()
    }

    /// A queue of each master that offers anything.
    pub(super) fn one_queue_each(&self) -> Vec<MessageQueue> {
        let offers = self.by_delay.values().flatten();
        let each: BTreeMap<_, _> = offers.map(|offer| (offer.master(), &offer.queue)).collect();
        each.into_values().cloned().collect()
    }

    /// Where to send what shall wait for `delay`: each time another queue, and not that of the master `except`.
    pub(super) fn choose(&self, delay: Duration, except: Option<&CheetahString>) -> Option<&Offer> {
        let offers = match self.reach {
            Reach::Levels(_) => self.by_delay.get(&delay)?,
            Reach::Any { .. } => self.by_delay.range(delay..).next()?.1,
        };
        let start = self.next.fetch_add(1, Ordering::Relaxed);
        (0..offers.len())
            .map(|step| &offers[start.wrapping_add(step) % offers.len()])
            .find(|offer| Some(offer.master()) != except)
    }
}

fn table_of(by_delay: &BTreeMap<Duration, Vec<Offer>>, tables: &[&LevelTable]) -> LevelTable {
    let offered = LevelTable::of(by_delay.keys().copied().collect());
    // That of the brokers, unless some of it is stuck.
    LevelTable::of_all(tables.iter().copied())
        .filter(|table| table.same_delays(&offered))
        .unwrap_or(offered)
}
