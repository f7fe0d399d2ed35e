//! The masters that wake-ups go through, and which of them offers which delay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use cheetah_string::CheetahString;
use rocketmq_model::message::MessageQueue;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::backlog::{self, Backlog};
use super::holding::Holding;
use crate::backend::{Delays, Reach};
use crate::misses::Misses;
use crate::rocketmq::Told;
use crate::{LevelTable, defaults};

/// Knows the masters, and chooses one for each wake-up.
///
/// Masters may have unlike tables, so a level's number means nothing without its master: what is offered are delays.
pub(super) struct Masters {
    known: Mutex<BTreeMap<CheetahString, Master>>,
    offers: RwLock<Arc<Offers>>,
    /// Told when a master has not taken a message.
    trouble: Notify,
}

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
    /// Whether the topic has been looked for there, and made if it was missing.
    pub(super) prepared: bool,
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

/// The delays that can be had, and where.
#[derive(Debug)]
pub(super) struct Offers {
    reach: Reach,
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

impl Master {
    pub(super) fn new(address: CheetahString) -> Self {
        Self {
            address,
            boot: None,
            holding: None,
            queues: Vec::new(),
            health: Health::Well,
            misses: Misses::default(),
            prepared: false,
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
        self.backlogs.clear();
    }

    fn is_stuck(&self, number: usize) -> bool {
        self.backlogs.get(&number).is_some_and(Backlog::is_stuck)
    }
}

impl Masters {
    /// Those known at the start; `reach` is what is offered as long as nobody is well.
    pub(super) fn new(known: BTreeMap<CheetahString, Master>, reach: Reach) -> Self {
        let offers = Offers::of(&known, &reach);
        Self {
            known: Mutex::new(known),
            offers: RwLock::new(Arc::new(offers)),
            trouble: Notify::new(),
        }
    }

    /// The delays that can be had now.
    pub(super) fn offers(&self) -> Arc<Offers> {
        self.offers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Of a batch some messages were not taken by `missed`, and some were by `took`.
    pub(super) fn sent(&self, took: &BTreeSet<CheetahString>, missed: &BTreeSet<CheetahString>) {
        let worn: Vec<_> = {
            let known = self.known();
            for master in took.iter().filter_map(|name| known.get(name)) {
                master.misses.took();
            }
            let missed = missed.difference(took);
            missed
                .filter(|&name| known.get(name).is_some_and(|master| master.misses.missed()))
                .collect()
        };
        for name in worn {
            self.unwell(name);
        }
        if !missed.is_empty() {
            self.trouble.notify_one();
        }
    }

    /// A master takes no messages: the others are used until it answers again.
    pub(super) fn unwell(&self, name: &CheetahString) {
        let is_news = self
            .known()
            .get(name)
            .is_some_and(|master| master.health == Health::Well);
        if is_news {
            self.change(|known| {
                if let Some(master) = known.get_mut(name) {
                    master.health = Health::Unwell;
                }
            });
            self.trouble.notify_one();
        }
    }

    /// Waits until a master has not taken a message.
    pub(super) async fn trouble(&self) {
        self.trouble.notified().await;
    }

    /// Whether there are masters, and each is well and has answered when it was last looked at.
    pub(super) fn all_well(&self) -> bool {
        let is_well = |master: &Master| master.health == Health::Well && !master.silent;
        let known = self.known();
        !known.is_empty() && known.values().all(is_well)
    }

    /// Changes what is known, and then what is offered.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<CheetahString, Master>) -> T) -> T {
        let mut known = self.known();
        let result = change(&mut known);
        let before = self.offers();
        let offers = Offers::of(&known, &before.reach);
        if !same(&offers.reach, &before.reach) {
            tracing::info!(reach = ?offers.reach, "what the brokers hold has changed");
        }
        *self.offers.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(offers);
        result
    }

    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<CheetahString, Master>> {
        // A holder that panicked has left the masters as they were or as they shall be.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Offers {
    /// What the well masters offer; with none, `last` is what the reach stays.
    fn of(known: &BTreeMap<CheetahString, Master>, last: &Reach) -> Self {
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

fn same(one: &Reach, other: &Reach) -> bool {
    match (one, other) {
        (Reach::Levels(one), Reach::Levels(other)) => one.same_delays(other),
        _ => one == other,
    }
}

fn table_of(by_delay: &BTreeMap<Duration, Vec<Offer>>, tables: &[&LevelTable]) -> LevelTable {
    let offered = LevelTable::of(by_delay.keys().copied().collect());
    // That of the brokers, unless some of it is stuck.
    LevelTable::of_all(tables.iter().copied())
        .filter(|table| table.same_delays(&offered))
        .unwrap_or(offered)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn masters<const N: usize>(tables: [&str; N]) -> Masters {
        let known = tables.into_iter().enumerate().map(|(at, table)| {
            let name = CheetahString::from(format!("broker-{at}"));
            let mut master = Master::new("127.0.0.1:1".into());
            master.holding = Some(Holding::Levels(table.parse().unwrap()));
            master.queues = (0..2)
                .map(|queue| MessageQueue::from_parts("t", name.clone(), queue))
                .collect();
            (name, master)
        });
        Masters::new(known.collect(), Reach::Levels(LevelTable::default()))
    }

    fn table(masters: &Masters) -> String {
        match masters.offers().delays().reach {
            Reach::Levels(table) => table.to_string(),
            reach => panic!("{reach:?}"),
        }
    }

    fn chosen(masters: &Masters, delay: Duration, except: Option<&str>) -> Vec<(String, i32, usize)> {
        let offers = masters.offers();
        let except = except.map(CheetahString::from);
        let mut chosen: Vec<_> = (0..8)
            .filter_map(|_| offers.choose(delay, except.as_ref()))
            .map(|offer| {
                let number = match offer.way {
                    Way::Level(number) => number,
                    Way::Timer => 0,
                };
                (offer.master().to_string(), offer.queue.queue_id(), number)
            })
            .collect();
        chosen.sort();
        chosen.dedup();
        chosen
    }

    #[test]
    fn like_tables_are_offered_as_they_are_and_every_queue_is_used() {
        let masters = masters(["5s 1s", "5s 1s"]);
        assert_eq!(table(&masters), "5s 1s");
        let b = |name: &str, queue| (name.to_owned(), queue, 2);
        assert_eq!(
            chosen(&masters, SECOND, None),
            [
                b("broker-0", 0),
                b("broker-0", 1),
                b("broker-1", 0),
                b("broker-1", 1)
            ]
        );
    }

    #[test]
    fn a_delay_is_had_from_those_masters_that_have_it_by_their_own_number() {
        let masters = masters(["1s 3s", "2s 1s"]);
        assert_eq!(table(&masters), "1s 2s 3s");
        let all = chosen(&masters, SECOND, None);
        assert_eq!(all.len(), 4);
        assert!(all.contains(&("broker-0".to_owned(), 0, 1)) && all.contains(&("broker-1".to_owned(), 0, 2)));
        assert_eq!(
            chosen(&masters, 2 * SECOND, None),
            [("broker-1".to_owned(), 0, 1), ("broker-1".to_owned(), 1, 1)]
        );
        assert_eq!(chosen(&masters, 2 * SECOND, Some("broker-1")), []);
        assert_eq!(chosen(&masters, 4 * SECOND, None), []);
    }

    #[test]
    fn an_unwell_master_is_left_out_and_with_none_well_nothing_is_had() {
        let masters = masters(["1s 3s", "2s 1s"]);
        masters.unwell(&"broker-1".into());
        assert_eq!(table(&masters), "1s 3s");
        masters.unwell(&"broker-0".into());
        assert!(!masters.offers().any());
        assert_eq!(
            table(&masters),
            "1s 3s",
            "as long as nothing is known to be otherwise"
        );
    }

    #[test]
    fn a_master_is_unwell_after_as_many_misses_in_a_row_as_count() {
        let masters = masters(["1s", "1s"]);
        let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
        let (none, a, b) = (names(&[]), names(&["broker-0"]), names(&["broker-1"]));
        for _ in 1..defaults::UNWELL_AFTER {
            masters.sent(&none, &a);
        }
        // It took a part of this batch.
        masters.sent(&a, &a);
        for _ in 1..defaults::UNWELL_AFTER {
            masters.sent(&b, &a);
        }
        assert!(masters.all_well());
        masters.sent(&b, &a);
        assert!(!masters.all_well());
        let only_b = [("broker-1".to_owned(), 0, 1), ("broker-1".to_owned(), 1, 1)];
        assert_eq!(chosen(&masters, SECOND, None), only_b);
    }

    #[test]
    fn a_stuck_level_is_not_offered_until_it_goes_on() {
        let masters = masters(["1s 3s"]);
        let figures = |delivered: u64| {
            Told::from([
                ("scheduleMessageOffset_1", "7,7"),
                ("scheduleMessageOffset_2", &format!("{delivered},9")),
            ])
        };
        let look = |after: u64, delivered| {
            let now = Instant::now() + Duration::from_secs(after);
            masters.change(|known| {
                known
                    .values_mut()
                    .flat_map(|master| master.look_at_levels(now, &figures(delivered)))
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(look(0, 4), []);
        assert_eq!(look(60, 4), [(3 * SECOND, true)]);
        assert_eq!(table(&masters), "1s");
        assert_eq!(look(61, 4), []);
        assert_eq!(look(62, 9), [(3 * SECOND, false)]);
        assert_eq!(table(&masters), "1s 3s");
    }

    #[test]
    fn of_timers_all_masters_hold_the_longest_that_each_of_them_holds() {
        let masters = masters(["1s", "1s", "1s"]);
        let timers = [3_600, 60].map(|seconds| Holding::Timers(Duration::from_secs(seconds)));
        masters.change(|known| {
            let holdings = timers.into_iter().chain([Holding::Not("of old age".into())]);
            for (master, holding) in known.values_mut().zip(holdings) {
                master.restarted(None, holding);
            }
        });
        let minute = Duration::from_secs(60);
        assert_eq!(masters.offers().delays().reach, Reach::Any { max: minute });
        for delay in [Duration::ZERO, SECOND, minute] {
            assert_eq!(masters.offers().check(delay), Ok(()));
            assert_eq!(
                chosen(&masters, delay, None).len(),
                4,
                "two queues of two masters"
            );
            assert_eq!(chosen(&masters, delay, Some("broker-0")).len(), 2);
        }
        assert_eq!(chosen(&masters, minute + Duration::from_nanos(1), None), []);
        assert!(masters.offers().check(minute + Duration::from_nanos(1)).is_err());
        masters.unwell(&"broker-1".into());
        let hour = Duration::from_secs(3_600);
        assert_eq!(masters.offers().delays().reach, Reach::Any { max: hour });
        masters.unwell(&"broker-0".into());
        assert!(!masters.offers().any());
        assert_eq!(masters.offers().delays().reach, Reach::Any { max: hour });
    }
}
