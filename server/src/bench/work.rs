//! The workloads, as every side does them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Error;
use super::figure::Measured;
use super::ledger::{Faults, Ledger};
use super::side::{Item, PATIENCE, Side, Verb};
use super::workload::{BATCH, CALLERS, WRITERS, Workload};

/// When tasks are due that are not to start, in ms from now: at first, and where they are moved to.
const FIRST: i64 = 3_600_000;
const MOVED: i64 = 7_200_000;
/// The shortest time in which all tasks are written before the first is due, and the longest.
const LEAD: Duration = Duration::from_secs(1);
const LONGEST_LEAD: Duration = Duration::from_secs(100);
/// How many tasks a second are first thought to be written.
const PACE: f64 = 40_000.0;

/// Measures one side, which `fresh` makes anew, in the order of the workload's figures.
pub(crate) async fn measure<S: Side>(
    workload: Workload,
    tasks: usize,
    fresh: &impl AsyncFn() -> Result<S, Error>,
) -> Result<Vec<Measured>, Error> {
    match workload {
        Workload::W1 => enqueue(tasks, fresh).await,
        Workload::W2 | Workload::W2L => Ok(vec![burst(tasks, fresh).await?]),
        Workload::W3 => Ok(vec![steady(tasks, 1, fresh).await?]),
        Workload::W6 => change(tasks, fresh).await,
        other => Err(format!("{other} is not measured so").into()),
    }
}

/// Tasks in the parts in which they go into calls.
fn parts(items: impl Iterator<Item = Item>, size: usize) -> Vec<Vec<Item>> {
    let items: Vec<Item> = items.collect();
    items.chunks(size).map(<[Item]>::to_vec).collect()
}

fn items(numbers: std::ops::Range<usize>, due: i64) -> impl Iterator<Item = Item> {
    numbers.map(move |number| Item { number, due })
}

/// Does something with each part, by so many callers at once; gives the seconds it took, and with how many tasks it was
/// done.
async fn apply<S: Side>(
    side: &S,
    verb: Verb,
    callers: usize,
    parts: Vec<Vec<Item>>,
) -> Result<(f64, usize), Error> {
    let share = parts.len().div_ceil(callers).max(1);
    let begun = Instant::now();
    let mut working = JoinSet::new();
    for parts in parts.chunks(share) {
        let (side, parts) = (side.clone(), parts.to_vec());
        working.spawn(async move {
            let mut done = 0;
            for part in &parts {
                done += side.apply(verb, part).await?;
            }
            Ok::<_, Error>(done)
        });
    }
    let mut done = 0;
    while let Some(worker) = working.join_next().await {
        done += worker??;
    }
    Ok((begun.elapsed().as_secs_f64(), done))
}

/// How a workload is called: by many with one task each, and by a few with many.
const CALLED: [(usize, usize); 2] = [(CALLERS, 1), (WRITERS, BATCH)];

async fn enqueue<S: Side>(
    tasks: usize,
    fresh: &impl AsyncFn() -> Result<S, Error>,
) -> Result<Vec<Measured>, Error> {
    let mut measured = Vec::new();
    for (callers, size) in CALLED {
        let side = fresh().await?;
        let due = side.clock().await?.now() / 1_000 + FIRST;
        let (seconds, done) = apply(&side, Verb::Add, callers, parts(items(0..tasks, due), size)).await?;
        let pending = side.pending().await?.all;
        measured.push(Measured {
            tasks,
            seconds: Some(seconds),
            faults: Faults {
                lost: tasks.saturating_sub(done.min(pending)),
                twice: pending.saturating_sub(tasks),
                early: 0,
            },
            ..Measured::default()
        });
        side.close().await?;
    }
    Ok(measured)
}

/// Writes tasks that are not due for long; gives how many.
pub(crate) async fn filled_for_long<S: Side>(side: &S, tasks: usize) -> Result<usize, Error> {
    let due = side.clock().await?.now() / 1_000 + FIRST;
    let (_, done) = apply(side, Verb::Add, WRITERS, parts(items(0..tasks, due), BATCH)).await?;
    Ok(done)
}

/// Cancels as many tasks; gives how many were.
pub(crate) async fn gone<S: Side>(side: &S, tasks: usize) -> Result<usize, Error> {
    let (_, done) = apply(side, Verb::Cancel, WRITERS, parts(items(0..tasks, 0), BATCH)).await?;
    Ok(done)
}

/// Half of the tasks are cancelled, the other half moved.
async fn change<S: Side>(
    tasks: usize,
    fresh: &impl AsyncFn() -> Result<S, Error>,
) -> Result<Vec<Measured>, Error> {
    let mut measured = Vec::new();
    let half = tasks / 2;
    for (callers, size) in CALLED {
        let side = fresh().await?;
        filled_for_long(&side, tasks).await?;
        let now = side.clock().await?.now() / 1_000;
        let cancelled = parts(items(0..half, now), size);
        let (cancelling, were_cancelled) = apply(&side, Verb::Cancel, callers, cancelled).await?;
        let moved = parts(items(half..tasks, now + MOVED), size);
        let (moving, were_moved) = apply(&side, Verb::Move, callers, moved).await?;
        let pending = side.pending().await?;
        // What is still there of the cancelled ones would run, and what was not moved would be early.
        let cancelled = Measured {
            tasks: half,
            seconds: Some(cancelling),
            faults: Faults {
                lost: half - were_cancelled.min(half),
                twice: pending.all.saturating_sub(tasks - half),
                early: 0,
            },
            ..Measured::default()
        };
        let moved = Measured {
            tasks: tasks - half,
            seconds: Some(moving),
            faults: Faults {
                lost: (tasks - half).saturating_sub(were_moved.min(pending.all)),
                twice: 0,
                early: pending.soon,
            },
            ..Measured::default()
        };
        measured.extend([cancelled, moved]);
        side.close().await?;
    }
    Ok(measured)
}

/// All are due at one instant, and are written before.
async fn burst<S: Side>(tasks: usize, fresh: &impl AsyncFn() -> Result<S, Error>) -> Result<Measured, Error> {
    let (side, ledger) = filled(tasks, 0, fresh).await?;
    let measured = drained(&side, &ledger).await?;
    side.close().await?;
    Ok(Measured {
        seconds: Some(ledger.seconds_from(ledger.due(0))),
        ..measured
    })
}

/// One is due each so many milliseconds.
pub(crate) async fn steady<S: Side>(
    tasks: usize,
    apart: i64,
    fresh: &impl AsyncFn() -> Result<S, Error>,
) -> Result<Measured, Error> {
    let (side, ledger) = filled(tasks, apart, fresh).await?;
    let measured = drained(&side, &ledger).await?;
    side.close().await?;
    Ok(measured)
}

/// A side with tasks that are due `apart` ms from each other, all written before the first of them is due: how long that
/// takes shows when it is tried.
async fn filled<S: Side>(
    tasks: usize,
    apart: i64,
    fresh: &impl AsyncFn() -> Result<S, Error>,
) -> Result<(S, Arc<Ledger>), Error> {
    let mut lead = LEAD + Duration::from_secs_f64(tasks as f64 / PACE);
    loop {
        let side = fresh().await?;
        let clock = side.clock().await?;
        let first = clock.now() / 1_000 + lead.as_millis() as i64;
        let due: Vec<i64> = (0..tasks as i64).map(|number| first + number * apart).collect();
        let all = due.iter().enumerate().map(|(number, &due)| Item { number, due });
        // One call after the other: of a wake-up its sender says how long it is to wait, and what waits for its turn to be
        // sent is late by that.
        let (seconds, done) = apply(&side, Verb::Add, 1, parts(all, BATCH)).await?;
        if done < tasks {
            return Err(format!("only {done} of {tasks} tasks could be written").into());
        }
        if clock.now() / 1_000 < first {
            return Ok((side, Arc::new(Ledger::new(clock, due))));
        }
        side.close().await?;
        if lead >= LONGEST_LEAD {
            return Err(
                format!("writing {tasks} tasks took {seconds:.0} s, which is too slow for this").into(),
            );
        }
        lead = (lead * 2)
            .max(Duration::from_secs_f64(seconds * 1.5))
            .min(LONGEST_LEAD);
    }
}

/// Has all of them started and ended.
pub(crate) async fn drained<S: Side>(side: &S, ledger: &Arc<Ledger>) -> Result<Measured, Error> {
    let last = ledger.due(ledger.len() - 1);
    let left = u64::try_from(last * 1_000 - ledger.now()).unwrap_or(0);
    // Whoever does not look at the time himself is given a little more of it.
    let patience = Duration::from_micros(left) + PATIENCE * 2;
    let ended = tokio::time::timeout(patience, side.drain(ledger)).await;
    let ended = ended.map_err(|_| "the tasks were not taken in time")??;
    let mut faults = ledger.faults(ended);
    // One that is still there though as many have ended would run once more.
    let left = ledger.len().saturating_sub(ended);
    faults.twice += side.pending().await?.all.saturating_sub(left);
    Ok(Measured {
        tasks: ledger.len(),
        late: ledger.late(),
        faults,
        ..Measured::default()
    })
}
