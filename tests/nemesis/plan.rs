//! Plans when which fault happens: a pure function of a seed.

use std::time::Duration;

use fastrand::Rng;

use crate::fault::{Fault, Harm, Line};
use crate::proxy::Network;
use crate::suspend::Still;

/// How long there is no fault at first.
pub(crate) const QUIET: Duration = Duration::from_secs(3);
/// How many faults there are at the same time, at the most.
const AT_ONCE: usize = 3;

/// The possible faults of a world.
#[derive(Clone, Debug)]
pub(crate) struct Possible {
    pub(crate) lines: Vec<Line>,
    pub(crate) workers: usize,
    pub(crate) store: Vec<Harm>,
    pub(crate) precise: Vec<Harm>,
    pub(crate) broker: Vec<Harm>,
}

/// A fault, from when until when.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Planned {
    pub(crate) begins: Duration,
    pub(crate) ends: Duration,
    pub(crate) fault: Fault,
}

/// Plans the faults within a span: sometimes one or a few at once, with calm between.
pub(crate) fn plan(seed: u64, span: Duration, possible: &Possible) -> Vec<Planned> {
    let mut chance = Rng::with_seed(seed);
    let mut planned = Vec::new();
    let mut now = QUIET;
    while now < span {
        let mut together = Vec::<Planned>::new();
        for _ in 0..chance.usize(1..=AT_ONCE) {
            let begins = now + millis(&mut chance, 0..1_000);
            let fault = fault(&mut chance, possible);
            let is_fit = |other: &Planned| {
                other.fault.touched() != fault.touched()
                    && !fault.waits_for(other.fault)
                    && !other.fault.waits_for(fault)
            };
            if together.iter().all(is_fit) {
                let ends = begins + lasts(&mut chance);
                together.push(Planned { begins, ends, fault });
            }
        }
        let over = together.iter().map(|planned| planned.ends).max();
        now = over.unwrap_or(now) + millis(&mut chance, 500..2_500);
        planned.extend(together);
    }
    planned
}

fn millis(chance: &mut Rng, range: std::ops::Range<u64>) -> Duration {
    Duration::from_millis(chance.u64(range))
}

/// Mostly about a lease, shorter and longer, and sometimes much longer.
fn lasts(chance: &mut Rng) -> Duration {
    if chance.u8(..8) == 0 {
        millis(chance, 5_000..12_000)
    } else {
        millis(chance, 200..4_000)
    }
}

fn fault(chance: &mut Rng, possible: &Possible) -> Fault {
    // Faults of the rows come most often.
    loop {
        let of_store = chance.choice(&possible.store);
        let of_precise = chance.choice(&possible.precise);
        let of_broker = chance.choice(&possible.broker);
        let line = chance.choice(&possible.lines);
        let to_store = line.filter(|line| line.is_to_store());
        let worker = chance.usize(..possible.workers);
        let fault = match chance.u8(..20) {
            0..6 => to_store.map(|line| Fault::Network(*line, network(chance))),
            6 => line.map(|line| Fault::Network(*line, network(chance))),
            7 => to_store.map(|line| Fault::Reset(*line)),
            8..10 => Some(Fault::Killed(worker)),
            10..13 => Some(Fault::Still(worker, still(chance))),
            13..18 => of_store.map(|harm| Fault::Store(*harm)),
            18 => of_precise.map(|harm| Fault::Precise(*harm)),
            _ => of_broker.map(|harm| Fault::Broker(*harm)),
        };
        if let Some(fault) = fault {
            return fault;
        }
    }
}

fn network(chance: &mut Rng) -> Network {
    match chance.u8(..8) {
        0 => Network::FrozenSoFar,
        1 => Network::Frozen,
        2 => Network::Unanswered,
        3 => Network::Refusing,
        4 => Network::Slow(millis(chance, 20..700)),
        5 => Network::DeafServer,
        6 => Network::DeafClient,
        _ => Network::Narrow(chance.u32(2_000..100_000)),
    }
}

fn still(chance: &mut Rng) -> Still {
    *chance
        .choice([&Still::Stopped, &Still::Suspended, &Still::Paused])
        .unwrap_or(&Still::Stopped)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn possible() -> Possible {
        Possible {
            lines: vec![Line::WorkersToStore, Line::CallersToStore],
            workers: 3,
            store: vec![Harm::Killed, Harm::TableAway],
            precise: Vec::new(),
            broker: vec![Harm::Hung],
        }
    }

    #[test]
    fn a_plan_is_that_of_its_seed() {
        let span = Duration::from_secs(600);
        let of = |seed| plan(seed, span, &possible());
        assert_eq!(of(7), of(7));
        assert_ne!(of(7), of(8));
    }

    #[test]
    fn of_faults_at_the_same_time_each_touches_something_else_and_there_is_calm_between() {
        for seed in 0..100 {
            let plan = plan(seed, Duration::from_secs(600), &possible());
            assert!(plan.len() > 50, "seed {seed}: {}", plan.len());
            for (at, one) in plan.iter().enumerate() {
                let others = plan[at + 1..].iter();
                for other in others.filter(|other| other.begins < one.ends) {
                    assert_ne!(one.fault.touched(), other.fault.touched(), "seed {seed}");
                    assert!(!one.fault.waits_for(other.fault), "seed {seed}");
                    assert!(!other.fault.waits_for(one.fault), "seed {seed}");
                }
            }
            let longest = plan.iter().map(|planned| planned.ends - planned.begins).max();
            assert!(longest.unwrap() < Duration::from_secs(12), "seed {seed}");
        }
    }
}
