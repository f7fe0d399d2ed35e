//! The production scheduler, worker and sweep on virtual time, in one thread, from one seed.
//!
//! Each history draws from its seed how many processes there are, how often they die and between which two steps, when they
//! are suspended, how their clocks differ and the store's is stepped, what the backends do to wake-ups, how calls of the
//! store fail, hang and are late, which rows are locked by transactions, when kinds are paused, what callers ask for and
//! what handlers answer. Then everything is healed. The store is held to its contract at every step (`model.rs`), every
//! answer to what became of the rows, every start and every end of a claim to the promises of `README.md` (`ledger.rs`).
//!
//! `DELAYLINE_HISTORIES=N` runs N histories (default 20,000 in a release build, else 300), from seed
//! `DELAYLINE_FIRST_SEED` (default: drawn by chance, and printed). `DELAYLINE_SEED=S` runs history S alone and prints all
//! that happened in it.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test may panic")]

#[path = "simulation/callers.rs"]
mod callers;
#[path = "simulation/gate.rs"]
mod gate;
#[path = "simulation/ground.rs"]
mod ground;
#[path = "simulation/ledger.rs"]
mod ledger;
#[path = "simulation/model.rs"]
mod model;
#[path = "simulation/operator.rs"]
mod operator;
#[path = "simulation/plan.rs"]
mod plan;
#[path = "simulation/process.rs"]
mod process;
#[path = "simulation/report.rs"]
mod report;
#[path = "support/setting.rs"]
mod setting;
#[path = "simulation/world.rs"]
mod world;

use std::sync::atomic::{AtomicU64, Ordering};

use report::Report;
use setting::setting;
use world::run;

/// The history of a seed; what was wrong in it, a panic included, with the check that found it first.
fn tried(seed: u64) -> Result<Report, String> {
    let report = std::panic::catch_unwind(|| run(seed, false))
        .map_err(|_| format!("seed {seed} [0 panic] (DELAYLINE_SEED={seed} shows it)"))?;
    match report.broken.first() {
        None => Ok(report),
        Some(first) => Err(format!(
            "seed {seed} [{}] (DELAYLINE_SEED={seed} shows it): {}",
            first.check, first.text
        )),
    }
}

#[test]
fn the_promises_hold_in_every_history() {
    std::panic::set_hook(Box::new(quiet));
    if let Some(seed) = setting("DELAYLINE_SEED") {
        let report = run(seed, true);
        println!("{}", report.lines.join("\n"));
        assert!(report.broken.is_empty(), "seed {seed}: {:#?}", report.broken);
        return;
    }
    let first = setting("DELAYLINE_FIRST_SEED").unwrap_or_else(|| fastrand::u64(..1 << 40));
    let histories =
        setting("DELAYLINE_HISTORIES").unwrap_or(if cfg!(debug_assertions) { 300 } else { 20_000 });
    let keep_going = setting::<u64>("DELAYLINE_KEEP_GOING").is_some();
    println!("{histories} histories from seed {first}");
    let next = AtomicU64::new(first);
    let began = std::time::Instant::now();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (totals, failures) = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    let (mut total, mut failures) = (Report::default(), Vec::new());
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= first + histories {
                            return (total, failures);
                        }
                        match tried(seed) {
                            Ok(report) => total.add(&report),
                            Err(failure) => {
                                failures.push((seed, failure));
                                if !keep_going {
                                    next.store(first + histories, Ordering::Relaxed);
                                }
                            }
                        }
                    }
                })
            })
            .collect();
        let (mut totals, mut failures) = (Report::default(), Vec::new());
        for worker in workers {
            let (total, failed) = worker.join().unwrap();
            totals.add(&total);
            failures.extend(failed);
        }
        (totals, failures)
    });
    println!("{}; in {:?}", totals.summary(), began.elapsed());
    if let Some((seed, _)) = failures.iter().min() {
        println!("found after {} histories", seed - first + 1);
    }
    let failures: Vec<_> = failures.into_iter().map(|(_, failure)| failure).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    if histories >= 1_000 {
        totals.assert_eventful();
    }
}

/// Handlers panic by chance, which need not be told.
fn quiet(panic: &std::panic::PanicHookInfo<'_>) {
    if panic.payload_as_str() != Some("by chance") {
        eprintln!("{panic}");
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..30 {
        let (first, second) = (run(seed, true), run(seed, true));
        assert_eq!(first.lines, second.lines, "seed {seed}");
    }
}
