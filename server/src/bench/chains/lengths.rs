//! Which delays take how many hops through the levels that brokers have.

use std::fmt;
use std::time::Duration;

use delayline::backend::{Delays, Reach};
use delayline::defaults;
use delayline::delay::{Hop, Level, LevelTable, Route, Routing, Spelled, plan, route};

/// How many hops are measured, where levels allow it.
const HOPS: [usize; 3] = [1, 2, 4];
/// How many come before Redis.
const HOPS_TO_REDIS: usize = 2;
/// The longest delay that anybody waits for here, in seconds.
const LONGEST: u64 = 120;
/// What is due sooner goes to Redis.
const HANDOFF: Duration = Duration::from_secs(5);

/// By which chains end in Redis.
pub(super) fn to_redis() -> Routing {
    Routing::default().handoff(HANDOFF).tolerance(Duration::ZERO)
}

/// A delay that takes so many hops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chain {
    pub(super) hops: usize,
    pub(super) delay: Duration,
    /// The first one's.
    pub(super) level: Level,
    /// Whether more hops would take too long.
    is_cut: bool,
}

impl Chain {
    /// The shortest delay of so many hops, be they punctual or late.
    fn shortest(hops: usize, routing: &Routing, delays: &Delays) -> Option<Self> {
        (1..=LONGEST).map(Duration::from_secs).find_map(|delay| {
            let punctual = plan(delay, routing, Some(delays));
            // With a tolerance chains are to end on a level.
            let ends = routing.tolerance.is_zero() || punctual.precise.is_zero();
            let late = [defaults::LEVELS_LATENESS / 2, defaults::LEVELS_LATENESS];
            let is_long = late
                .iter()
                .all(|&late| late_hops(delay, late, routing, delays) >= hops);
            match punctual.hops.first() {
                Some(&Hop::Level(level)) if punctual.hops.len() == hops && ends && is_long => Some(Self {
                    hops,
                    delay,
                    level,
                    is_cut: false,
                }),
                _ => None,
            }
        })
    }

    /// The same with the most hops of at most so many.
    fn longest(hops: usize, routing: &Routing, delays: &Delays) -> Option<Self> {
        let chain = (1..=hops)
            .rev()
            .find_map(|hops| Self::shortest(hops, routing, delays))?;
        Some(Self {
            is_cut: chain.hops < hops,
            ..chain
        })
    }
}

/// How many hops a delay takes, if its task and each hop is so late.
fn late_hops(delay: Duration, late: Duration, routing: &Routing, delays: &Delays) -> usize {
    let mut remaining = delay.saturating_sub(late);
    let mut hops = 0;
    while let Route::Hop(hop) = route(remaining, routing, Some(delays)) {
        remaining = remaining.saturating_sub(hop.delay() + late);
        hops += 1;
    }
    hops
}

impl fmt::Display for Chain {
    /// `4 hops (8s)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hops, delay, .. } = self;
        let unit = if *hops == 1 { "hop" } else { "hops" };
        write!(f, "{hops} {unit} ({})", Spelled(*delay))?;
        match self.is_cut {
            true => write!(f, ", the most within {}", Spelled(Duration::from_secs(LONGEST))),
            false => Ok(()),
        }
    }
}

/// The chains that a table allows.
#[derive(Debug)]
pub(super) struct Lengths {
    /// Of levels alone, the shortest first.
    chains: Vec<Chain>,
    to_redis: Option<Chain>,
}

impl Lengths {
    pub(super) fn of(table: &LevelTable) -> Self {
        let delays = Delays {
            reach: Reach::Levels(table.clone()),
            usual_lateness: defaults::LEVELS_LATENESS,
        };
        let routing = Routing::default();
        let mut chains: Vec<Chain> = HOPS
            .iter()
            .filter_map(|&hops| Chain::longest(hops, &routing, &delays))
            .collect();
        // The longest of two numbers of hops may be the same.
        chains.dedup_by_key(|chain| chain.hops);
        Self {
            chains,
            to_redis: Chain::longest(HOPS_TO_REDIS, &to_redis(), &delays),
        }
    }

    /// Chains of levels alone.
    pub(super) fn chains(&self) -> &[Chain] {
        &self.chains
    }

    pub(super) fn one_hop(&self) -> Option<&Chain> {
        self.of_hops(1)
    }

    pub(super) fn two_hops(&self) -> Option<&Chain> {
        self.of_hops(2)
    }

    fn of_hops(&self, hops: usize) -> Option<&Chain> {
        self.chains.iter().find(|chain| chain.hops == hops)
    }

    /// The chain that ends in Redis.
    pub(super) fn to_redis(&self) -> Option<&Chain> {
        self.to_redis.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The chains of a table as figures name them, that to Redis last.
    fn of(table: &str) -> Vec<String> {
        let lengths = Lengths::of(&table.parse().unwrap());
        let chains = lengths.chains().iter().chain(lengths.to_redis());
        chains.map(ToString::to_string).collect()
    }

    #[test]
    fn the_shortest_delays_take_as_many_hops_even_if_these_are_late() {
        assert_eq!(
            of("1s 2s 1h"),
            ["1 hop (2s)", "2 hops (4s)", "4 hops (8s)", "2 hops (8s)"]
        );
        assert_eq!(
            of(delayline::delay::ROCKETMQ_LEVELS),
            ["1 hop (5s)", "2 hops (15s)", "4 hops (55s)", "2 hops (16s)"]
        );
    }

    #[test]
    fn what_would_take_too_long_is_as_long_as_it_may() {
        assert_eq!(of("10s 50s"), ["1 hop (50s)", "2 hops (1m 40s)", "2 hops (21s)"]);
        assert!(of("1h").is_empty());
        let two = Lengths::of(&"1s 2s 1h".parse().unwrap());
        assert_eq!(two.two_hops().unwrap().level, two.one_hop().unwrap().level);
    }
}
