//! Holds the masters that wake-ups go through.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use cheetah_string::CheetahString;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::master::MasterState;
use super::routing_table::RoutingTable;
use crate::backend::Reach;

/// Knows the masters, and chooses one for each wake-up.
///
/// Masters may have different tables, so a level's number means nothing without its master: routes are by delay.
pub(super) struct Masters {
    known: Mutex<BTreeMap<CheetahString, MasterState>>,
    routes: RwLock<Arc<RoutingTable>>,
    /// Notified when a master has not taken a message.
    send_failure: Notify,
}

impl Masters {
    /// Starts with known masters; `reach` is assumed as long as none is usable.
    pub(super) fn new(known: BTreeMap<CheetahString, MasterState>, reach: Reach) -> Self {
        let routes = RoutingTable::of(&known, &reach, Arc::default());
        Self {
            known: Mutex::new(known),
            routes: RwLock::new(Arc::new(routes)),
            send_failure: Notify::new(),
        }
    }

    /// Returns the delays that are available now.
    pub(super) fn routes(&self) -> Arc<RoutingTable> {
        self.routes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Records a batch of which some messages were not confirmed by `missed`, and some were by `took`.
    pub(super) fn sent(&self, took: &BTreeSet<CheetahString>, missed: &BTreeSet<CheetahString>) {
        let now = Instant::now();
        let opened: Vec<_> = {
            let mut known = self.known();
            for name in took {
                if let Some(master) = known.get_mut(name) {
                    master.took();
                }
            }
            let missed = missed.difference(took);
            missed
                .filter(|&name| known.get_mut(name).is_some_and(|master| master.missed(now)))
                .collect()
        };
        if !opened.is_empty() {
            self.change(|_| ());
        }
        for broker in opened {
            tracing::warn!(
                %broker,
                "a broker confirmed nothing of several batches in a row, so nothing is sent to it until it answers a probe; \
                 others, or the precise backend, carry its wake-ups: see the broker's load, its disk and its log, and that \
                 the account may send"
            );
        }
        if !missed.is_empty() {
            self.send_failure.notify_one();
        }
    }

    /// Records that a master takes no messages: the others are used until it answers again.
    pub(super) fn open(&self, name: &CheetahString) {
        let now = Instant::now();
        let has_opened = self.known().get_mut(name).is_some_and(|master| master.open(now));
        if has_opened {
            self.change(|_| ());
            self.send_failure.notify_one();
        }
    }

    /// Waits until a master has not taken a message.
    pub(super) async fn send_failure(&self) {
        self.send_failure.notified().await;
    }

    /// Says whether there are masters, all usable, and each has answered its last health check.
    pub(super) fn all_healthy(&self) -> bool {
        let is_healthy = |master: &MasterState| master.circuit.is_sent_to() && !master.is_silent;
        let known = self.known();
        !known.is_empty() && known.values().all(is_healthy)
    }

    /// Changes the masters, and then the routes.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut BTreeMap<CheetahString, MasterState>) -> T) -> T {
        let mut known = self.known();
        let result = change(&mut known);
        let before = self.routes();
        let routes = RoutingTable::of(&known, &before.reach, before.next.clone());
        if !same(&routes.reach, &before.reach) {
            tracing::info!(reach = ?routes.reach, "the delays that RocketMQ brokers can be sent have changed");
        }
        *self.routes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(routes);
        result
    }

    pub(super) fn known(&self) -> MutexGuard<'_, BTreeMap<CheetahString, MasterState>> {
        // A holder that panicked has left the masters either unchanged or changed completely.
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

    use super::super::decision::Circuit;
    use super::super::delay_support::DelaySupport;
    use super::super::routing_table::DelayProperty;
    use super::*;
    use crate::defaults;
    use crate::delay::LevelTable;
    use crate::rocketmq::BrokerInfo;

    const SECOND: Duration = Duration::from_secs(1);

    fn masters<const N: usize>(tables: [&str; N]) -> Masters {
        let known = tables.into_iter().enumerate().map(|(at, table)| {
            let name = CheetahString::from(format!("broker-{at}"));
            let mut master = MasterState::new("127.0.0.1:1".into());
            master.delay_support = Some(DelaySupport::Levels(table.parse().unwrap()));
            master.queues = (0..2)
                .map(|queue| MessageQueue::from_parts("t", name.clone(), queue))
                .collect();
            (name, master)
        });
        Masters::new(known.collect(), Reach::Levels(LevelTable::default()))
    }

    fn table(masters: &Masters) -> String {
        match masters.routes().delays().reach {
            Reach::Levels(table) => table.to_string(),
            reach => panic!("{reach:?}"),
        }
    }

    fn chosen(masters: &Masters, delay: Duration, except: Option<&str>) -> Vec<(String, i32, usize)> {
        let routes = masters.routes();
        let except = except.map(CheetahString::from);
        let mut chosen: Vec<_> = (0..8)
            .filter_map(|_| routes.choose(delay, except.as_ref()))
            .map(|destination| {
                let number = match destination.property {
                    DelayProperty::Level(number) => number,
                    DelayProperty::Timer => 0,
                };
                (
                    destination.master().to_string(),
                    destination.queue.queue_id(),
                    number,
                )
            })
            .collect();
        chosen.sort();
        chosen.dedup();
        chosen
    }

    #[test]
    fn like_tables_are_kept_as_they_are_and_every_queue_is_used() {
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
    fn every_queue_is_used_also_by_wake_ups_that_come_once_in_a_health_check() {
        let masters = masters(["1s", "1s"]);
        let chosen = (0..8).map(|_| {
            masters.change(|_| ());
            let routes = masters.routes();
            let destination = routes.choose(SECOND, None).unwrap();
            (destination.master().clone(), destination.queue.queue_id())
        });
        assert_eq!(chosen.collect::<BTreeSet<_>>().len(), 4);
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
    fn a_master_with_an_open_circuit_is_left_out_and_with_all_open_there_is_no_route() {
        let masters = masters(["1s 3s", "2s 1s"]);
        masters.open(&"broker-1".into());
        assert_eq!(table(&masters), "1s 3s");
        masters.open(&"broker-0".into());
        assert!(!masters.routes().has_any());
        assert_eq!(
            table(&masters),
            "1s 3s",
            "as long as nothing is known to be otherwise"
        );
    }

    #[test]
    fn a_circuit_opens_after_as_many_failures_in_a_row_as_count() {
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
        assert!(masters.all_healthy());
        masters.sent(&b, &a);
        assert!(!masters.all_healthy());
        let only_b = [("broker-1".to_owned(), 0, 1), ("broker-1".to_owned(), 1, 1)];
        assert_eq!(chosen(&masters, SECOND, None), only_b);
    }

    #[test]
    fn a_half_open_circuit_closes_with_the_first_success_and_else_is_probed_less_and_less_often() {
        let masters = masters(["1s", "1s"]);
        let names = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
        let (none, a): (_, BTreeSet<_>) = (names(&[]), names(&["broker-0"]));
        let tried_again = || {
            masters.change(|known| {
                let master = known.get_mut("broker-0").unwrap();
                master.circuit = Circuit::HalfOpen;
            });
        };
        let pause = || {
            let (known, now) = (masters.known(), Instant::now());
            (0..100)
                .find(|&second| known["broker-0"].probe_backoff.is_due(now + second * SECOND))
                .unwrap()
        };
        masters.open(&"broker-0".into());
        assert_eq!(pause(), 1);
        for expected in [2, 4, 8] {
            tried_again();
            masters.sent(&none, &a);
            assert!(!masters.all_healthy(), "one failure is enough");
            assert_eq!(pause(), expected);
        }
        tried_again();
        masters.sent(&a, &none);
        assert_eq!(pause(), 0);
        masters.sent(&none, &a);
        assert!(masters.all_healthy(), "it is as good as any other");
    }

    #[test]
    fn a_stuck_level_has_no_route_until_it_goes_on() {
        let masters = masters(["1s 3s"]);
        let stats = |delivered: u64| {
            BrokerInfo::from([
                ("scheduleMessageOffset_1", "7,7"),
                ("scheduleMessageOffset_2", &format!("{delivered},9")),
            ])
        };
        let observe = |after: u64, delivered| {
            let now = Instant::now() + Duration::from_secs(after);
            masters.change(|known| {
                known
                    .values_mut()
                    .flat_map(|master| master.observe_levels("broker-0", now, &stats(delivered)))
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(observe(0, 4), []);
        assert_eq!(observe(60, 4), [(3 * SECOND, true)]);
        assert_eq!(table(&masters), "1s");
        assert_eq!(observe(61, 4), []);
        assert_eq!(observe(62, 9), [(3 * SECOND, false)]);
        assert_eq!(table(&masters), "1s 3s");
    }

    #[test]
    fn each_level_that_has_figures_is_told_to_be_stuck_or_not() {
        use metrics_util::debugging::{DebugValue, DebuggingRecorder};

        use crate::observe::metrics::recorded;

        let recorder = DebuggingRecorder::new();
        let _recording = metrics::set_default_local_recorder(&recorder);
        let mut master = MasterState::new("127.0.0.1:1".into());
        master.delay_support = Some(DelaySupport::Levels("1s 3s 5s".parse().unwrap()));
        let stats = BrokerInfo::from([
            ("scheduleMessageOffset_1", "7,7"),
            ("scheduleMessageOffset_2", "4,9"),
        ]);
        for after in [0, 60] {
            let now = Instant::now() + Duration::from_secs(after);
            master.observe_levels("a", now, &stats);
        }
        let level = |name: &str, stuck: f64| (name.to_owned(), DebugValue::Gauge(stuck.into()));
        assert_eq!(recorded(&recorder), [level("a 1s", 0.0), level("a 3s", 1.0)]);
    }

    #[test]
    fn of_timers_all_masters_hold_the_longest_that_each_of_them_holds() {
        let masters = masters(["1s", "1s", "1s"]);
        let timers = [3_600, 60].map(|seconds| DelaySupport::Timers(Duration::from_secs(seconds)));
        masters.change(|known| {
            let delay_supports = timers
                .into_iter()
                .chain([DelaySupport::Unsupported("of old age".into())]);
            for (master, delay_support) in known.values_mut().zip(delay_supports) {
                master.restarted(None, delay_support);
            }
        });
        let minute = Duration::from_secs(60);
        assert_eq!(masters.routes().delays().reach, Reach::Any { max: minute });
        for delay in [Duration::ZERO, SECOND, minute] {
            assert_eq!(masters.routes().check(delay), Ok(()));
            assert_eq!(
                chosen(&masters, delay, None).len(),
                4,
                "two queues of two masters"
            );
            assert_eq!(chosen(&masters, delay, Some("broker-0")).len(), 2);
        }
        assert_eq!(chosen(&masters, minute + Duration::from_nanos(1), None), []);
        assert!(masters.routes().check(minute + Duration::from_nanos(1)).is_err());
        masters.open(&"broker-1".into());
        let hour = Duration::from_secs(3_600);
        assert_eq!(masters.routes().delays().reach, Reach::Any { max: hour });
        masters.open(&"broker-0".into());
        assert!(!masters.routes().has_any());
        assert_eq!(masters.routes().delays().reach, Reach::Any { max: hour });
    }
}
