//! The production scheduler, worker and sweep on virtual time, in one thread, from one seed.
//!
//! Each history draws from its seed how many processes there are, how often they die and between which two steps,
//! how their clocks differ, what the backends do to wake-ups, how often the store fails, what callers ask for and
//! what handlers answer. Then everything is healed, and the seven invariants are checked.
//!
//! `DELAYLINE_HISTORIES=N` runs N histories (default 20,000 in a release build, else 300), from seed
//! `DELAYLINE_FIRST_SEED` (default 0). `DELAYLINE_SEED=S` runs history S alone and prints all that happened in it.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "simulation/gate.rs"]
mod gate;
#[path = "simulation/history.rs"]
mod history;
#[path = "simulation/world.rs"]
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use world::{Report, run};

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is {text:?}: allowed is a whole number")),
    )
}

#[test]
fn the_invariants_hold_in_every_history() {
    if let Some(seed) = number("DELAYLINE_SEED") {
        let report = run(seed);
        println!("{}", report.lines.join("\n"));
        assert!(report.broken.is_empty(), "seed {seed}: {:#?}", report.broken);
        return;
    }
    let first = number("DELAYLINE_FIRST_SEED").unwrap_or(0);
    let histories =
        number("DELAYLINE_HISTORIES").unwrap_or(if cfg!(debug_assertions) { 300 } else { 20_000 });
    let next = AtomicU64::new(first);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let totals = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let mut total = Report::default();
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= first + histories {
                            return total;
                        }
                        let report = std::panic::catch_unwind(|| run(seed)).unwrap_or_else(|_| {
                            panic!("seed {seed} panicked (DELAYLINE_SEED={seed} shows it)")
                        });
                        assert!(
                            report.broken.is_empty(),
                            "seed {seed} (DELAYLINE_SEED={seed} shows it): {:#?}",
                            report.broken
                        );
                        total.add(&report);
                    }
                })
            })
            .collect();
        let mut totals = Report::default();
        for worker in workers {
            match worker.join() {
                Ok(total) => totals.add(&total),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        totals
    });
    println!("{histories} histories: {}", totals.summary());
    // A simulation in which nothing goes wrong shows nothing.
    if histories >= 1_000 {
        totals.assert_eventful();
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..30 {
        let (first, second) = (run(seed), run(seed));
        assert_eq!(first.lines, second.lines, "seed {seed}");
    }
}
