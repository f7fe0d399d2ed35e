//! What a history draws from its seed before it begins.

use std::time::Duration;

use delayline::backend::{Delays, Reach};
use delayline::clock::Clock;
use delayline::delay::Routing;
use delayline::testing::Faults;
use delayline::{Kind, Policy, defaults};

pub(crate) const KINDS: [&str; 3] = ["a", "b", "c"];
pub(crate) const KEYS: [&str; 3] = ["x", "y", "z"];

/// Everything that is the same for a whole history.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Whether nothing goes wrong at all, so that the plan of each chain is kept to the letter.
    pub(crate) calm: bool,
    pub(crate) processes: u64,
    /// Whether processes are killed, or stop in peace.
    pub(crate) deaths: bool,
    /// How many times something happens to a process, to the way to the store or to the store's clock.
    pub(crate) suspensions: u64,
    pub(crate) outages: u64,
    pub(crate) steps: u64,
    /// How many times a kind is paused.
    pub(crate) pauses: u64,
    pub(crate) store: StoreFaults,
    pub(crate) faults: Faults,
    /// Whether the backends stay as they are when all else is healed.
    pub(crate) backends_stay_ill: bool,
    pub(crate) precise: Precise,
    pub(crate) routing: Routing,
    /// What the carrier has, if there is one: levels, or timers as late as a broker's.
    pub(crate) levels: Option<Delays>,
    pub(crate) lease: Duration,
    pub(crate) sweep_every: Duration,
    pub(crate) history: Duration,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: usize,
    pub(crate) max_attempts: u32,
    pub(crate) max_stalls: u32,
    pub(crate) backoff: (Duration, Duration),
    pub(crate) timeout: Duration,
    pub(crate) deadline: Option<Duration>,
    /// Whether the tasks of the last kind follow the service's own table, looked at this often.
    pub(crate) follows: bool,
    pub(crate) every: Duration,
    pub(crate) tasks: u64,
    pub(crate) actions: u64,
    pub(crate) longest: Duration,
    pub(crate) skewed: bool,
}

/// What carries the last stretch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Precise {
    Table,
    /// The wheel, in one process for all.
    Wheel,
    Faulty,
}

/// How often a call of the store goes wrong, in per mille.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StoreFaults {
    /// It fails, without any effect.
    pub(crate) fail: u64,
    /// It has its effect, and the answer is lost.
    pub(crate) lose: u64,
    /// It never answers.
    pub(crate) hang: u64,
    /// It answers late, perhaps after a lease.
    pub(crate) late: u64,
}

impl Plan {
    pub(crate) fn draw(clock: &Clock) -> Self {
        let chance = |percent| clock.random_below(100) < percent;
        let calm = chance(15);
        let up_to = |most| {
            if calm || chance(40) {
                0
            } else {
                clock.random_below(most)
            }
        };
        let one_of = |choices: &[u64]| choices[clock.random_below(choices.len() as u64) as usize];
        let tables = ["1s 5s 10s 30s 1m 2m", "3s 1s 2s", "1s", "2s 1s 4s 4s 8s 16s"];
        let table = clock.random_below(tables.len() as u64 + 2) as usize;
        let levels = match tables.get(table) {
            Some(table) => Some(Delays {
                reach: Reach::Levels(table.parse().unwrap()),
                usual_lateness: defaults::LEVELS_LATENESS,
            }),
            None if table == tables.len() => Some(Delays {
                reach: Reach::Any {
                    max: Duration::from_secs(one_of(&[5, 40, 259_200])),
                },
                usual_lateness: defaults::TIMERS_LATENESS,
            }),
            None => None,
        };
        let reliable = chance(40);
        let faults = |most| if reliable { 0 } else { up_to(most) };
        let history = Duration::from_secs(one_of(&[20, 3_600, 604_800]));
        Self {
            calm,
            processes: one_of(&[1, 2, 2, 2, 2, 3, 3, 3, 4, 6]),
            deaths: !calm && chance(60),
            suspensions: up_to(4),
            outages: if reliable { 0 } else { up_to(3) },
            steps: if chance(70) { 0 } else { up_to(4) },
            pauses: if chance(50) { 0 } else { up_to(4) },
            store: StoreFaults {
                fail: faults(100),
                lose: faults(100),
                hang: faults(20),
                late: faults(40),
            },
            faults: Faults {
                lose: up_to(40),
                double: up_to(60),
                late: up_to(30),
                early: up_to(30),
                refuse: up_to(30),
                forget: up_to(10),
                usual: Duration::from_millis(100),
            },
            backends_stay_ill: !calm && chance(15),
            precise: [Precise::Table, Precise::Wheel, Precise::Faulty, Precise::Faulty]
                [clock.random_below(4) as usize],
            routing: Routing::default()
                .handoff(Duration::from_millis(one_of(&[200, 1_000, 5_000])))
                .tolerance(Duration::from_millis(one_of(&[0, 200, 200, 900])))
                .horizon(Duration::from_secs(one_of(&[20, 3_600]))),
            levels,
            lease: Duration::from_secs(one_of(&[1, 5, 5, 30])),
            sweep_every: Duration::from_millis(one_of(&[500, 500, 1_000])),
            // Where it is short, most of it is removed before the end.
            history,
            concurrency: 1 + clock.random_below(3) as usize,
            prefetch: one_of(&[0, 1, 2, 5]) as usize,
            max_attempts: 1 + clock.random_below(6) as u32,
            max_stalls: one_of(&[2, 5, 100]) as u32,
            backoff: (Duration::from_millis(100), Duration::from_secs(one_of(&[1, 5]))),
            timeout: Duration::from_millis(one_of(&[500, 3_000, 12_000])),
            deadline: (!calm && chance(20)).then(|| Duration::from_secs(one_of(&[2, 20]))),
            follows: chance(40),
            every: Duration::from_secs(one_of(&[1, 3])),
            tasks: 1 + clock.random_below(6),
            actions: clock.random_below(if calm { 3 } else { 10 }),
            longest: Duration::from_secs(one_of(&[1, 5, 10, 20, 40])),
            skewed: chance(50),
        }
    }

    /// Whether no answer of the store is lost, so that every claim belongs to a worker.
    pub(crate) fn store_is_reliable(&self) -> bool {
        let StoreFaults {
            fail,
            lose,
            hang,
            late,
        } = self.store;
        fail + lose + hang + late == 0 && self.outages == 0
    }

    pub(crate) fn policy(&self) -> Policy {
        let policy = Policy::new()
            .concurrency(self.concurrency)
            .prefetch(self.prefetch)
            .max_attempts(self.max_attempts)
            .max_stalls(self.max_stalls)
            .backoff(self.backoff.0, self.backoff.1)
            .execution_timeout(self.timeout);
        match self.deadline {
            Some(deadline) => policy.deadline(deadline),
            None => policy,
        }
    }

    /// How many tasks of a kind a worker may hold.
    pub(crate) fn capacity(&self) -> usize {
        self.concurrency + self.prefetch
    }

    /// The longest pause after this attempt has failed.
    pub(crate) fn longest_pause(&self, attempt: u32) -> Duration {
        let (first, most) = self.backoff;
        first.saturating_mul(1 << (attempt.max(1) - 1).min(20)).min(most)
    }

    pub(crate) fn is_followed(&self, kind: &Kind) -> bool {
        self.follows && kind.as_str() == KINDS[2]
    }

    /// How long after the last fault what it left behind may last: a call that hangs, a claim of a worker that is gone,
    /// and handlers that run.
    pub(crate) fn recovery(&self) -> Duration {
        2 * self.lease + self.timeout + defaults::STORE_TIMEOUT + Duration::from_secs(2)
    }

    /// How late tasks may be in a calm history beside the tolerance and the lateness of one level, in ms.
    /// What another process has written that is due so soon, the table finds only at the next sweep.
    pub(crate) fn calm_lateness(&self, asked: Duration) -> i64 {
        let of_timers = match &self.levels {
            Some(Delays {
                reach: Reach::Any { .. },
                ..
            }) => 1_100,
            _ => 0,
        };
        let is_soon = self.precise == Precise::Table && asked <= self.sweep_every + Duration::from_millis(50);
        of_timers + if is_soon { millis(self.sweep_every) } else { 0 }
    }
}

pub(crate) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap()
}
