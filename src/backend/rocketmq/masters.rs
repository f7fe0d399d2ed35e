//! The masters that wake-ups go through, and which of them offers which delay.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use cheetah_string::CheetahString;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::master::{Health, Master};
use super::offers::Offers;
use crate::backend::Reach;

/// Knows the masters, and chooses one for each wake-up.
///
/// Masters may have unlike tables, so a level's number means nothing without its master: what is offered are delays.
pub(super) struct Masters {
    known: Mutex<BTreeMap<CheetahString, Master>>,
    offers: RwLock<Arc<Offers>>,
    /// Told when a master has not taken a message.
    trouble: Notify,
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
            let mut known = self.known();
            for name in took {
                if let Some(master) = known.get_mut(name) {
                    master.misses.took();
                    master.trial.succeeded();
                }
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
                    master.trial.failed(Instant::now());
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

fn same(one: &Reach, other: &Reach) -> bool {
    match (one, other) {
        (Reach::Levels(one), Reach::Levels(other)) => one.same_delays(other),
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rocketmq_model::message::MessageQueue;

    use super::super::holding::Holding;
    use super::super::offers::Way;
    use super::*;
    use crate::rocketmq::Told;
    use crate::{LevelTable, defaults};

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
    fn a_master_that_is_tried_again_is_well_when_it_has_taken_something_and_else_tried_less_and_less_often() {
        let masters = masters(["1s", "1s"]);
        let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
        let (none, a): (_, BTreeSet<_>) = (names(&[]), names(&["broker-0"]));
        let tried_again = || {
            masters.change(|known| {
                let master = known.get_mut("broker-0").unwrap();
                master.health = Health::Well;
                master.misses.on_trial();
            });
        };
        let pause = || {
            let (known, now) = (masters.known(), Instant::now());
            (0..100)
                .find(|&second| known["broker-0"].trial.is_due(now + second * SECOND))
                .unwrap()
        };
        masters.unwell(&"broker-0".into());
        assert_eq!(pause(), 1);
        for expected in [2, 4, 8] {
            tried_again();
            masters.sent(&none, &a);
            assert!(!masters.all_well(), "one miss is enough");
            assert_eq!(pause(), expected);
        }
        tried_again();
        masters.sent(&a, &none);
        assert_eq!(pause(), 0);
        masters.sent(&none, &a);
        assert!(masters.all_well(), "it is as good as any other");
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
