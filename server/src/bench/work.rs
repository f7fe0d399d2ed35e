//! Runs the workloads, the same for both sides.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::Error;
use super::figure::Measured;
use super::ledger::{Faults, Ledger};
use super::side::{BATCH, CALLERS, Item, Side, Verb, WRITERS};
use super::workload::Workload;

/// How far away tasks are due that are not to start, in ms; they are moved by as much.
const FAR: i64 = 3_600_000;
/// In how many seconds from now tasks are due that must all be written before: as long as it takes.
const LEADS: [u64; 4] = [2, 10, 30, 100];

/// Measures one side, which `fresh` makes for each, in the order of the workload's figures.
pub(crate) async fn measure(
    workload: Workload,
    tasks: usize,
    fresh: &impl AsyncFn() -> Result<Arc<dyn Side>, Error>,
) -> Result<Vec<Measured>, Error> {
    match workload {
        Workload::W2 => return Ok(vec![drained(tasks, 0, fresh).await?]),
        Workload::W3 => return Ok(vec![drained(tasks, 1, fresh).await?]),
        _ => {}
    }
    let mut measured = Vec::new();
    // By many callers with one task each, and by a few with many.
    for (callers, size) in [(CALLERS, 1), (WRITERS, BATCH)] {
        let side = fresh().await?;
        let far = side.now().await? + FAR;
        if workload == Workload::W1 {
            measured.push(apply(&side, Verb::Add, callers, size, 0..tasks, far).await?);
        } else {
            apply(&side, Verb::Add, WRITERS, BATCH, 0..tasks, far).await?;
            let half = tasks / 2;
            measured.push(apply(&side, Verb::Cancel, callers, size, 0..half, far).await?);
            measured.push(apply(&side, Verb::Move, callers, size, half..tasks, far + FAR).await?);
        }
        side.close().await?;
    }
    Ok(measured)
}

/// Changes tasks, by so many callers at once, with so many in each call.
async fn apply(
    side: &Arc<dyn Side>,
    verb: Verb,
    callers: usize,
    size: usize,
    numbers: Range<usize>,
    due: i64,
) -> Result<Measured, Error> {
    let tasks = numbers.len();
    let items: Vec<Item> = numbers.map(|number| Item { number, due }).collect();
    let share = tasks.div_ceil(size).div_ceil(callers).max(1) * size;
    let begun = Instant::now();
    let mut working = JoinSet::new();
    for share in items.chunks(share) {
        let (side, share) = (Arc::clone(side), share.to_vec());
        working.spawn(async move {
            let mut done = 0;
            for part in share.chunks(size) {
                done += side.apply(verb, part).await?;
            }
            Ok::<_, Error>(done)
        });
    }
    let mut done = 0;
    while let Some(worker) = working.join_next().await {
        done += worker??;
    }
    Ok(Measured {
        tasks,
        seconds: begun.elapsed().as_secs_f64(),
        faults: Faults {
            lost: tasks.saturating_sub(done),
            ..Faults::default()
        },
        ..Measured::default()
    })
}

/// Starts and ends tasks that are due `apart` ms from each other, and were all written before the first is due.
async fn drained(
    tasks: usize,
    apart: i64,
    fresh: &impl AsyncFn() -> Result<Arc<dyn Side>, Error>,
) -> Result<Measured, Error> {
    for lead in LEADS {
        let side = fresh().await?;
        let ledger = Arc::new(Ledger::new(&*side, tasks, Duration::from_secs(lead), apart).await?);
        let items: Vec<Item> = (0..tasks).map(|number| ledger.item(number)).collect();
        for part in items.chunks(BATCH) {
            side.apply(Verb::Add, part).await?;
        }
        if ledger.now() < items[0].due * 1_000 {
            let ended = Arc::clone(&side).drain(Arc::clone(&ledger)).await?;
            side.close().await?;
            return Ok(ledger.measured(ended));
        }
        side.close().await?;
    }
    Err(format!(
        "{tasks} tasks could not be written within {} s",
        LEADS[LEADS.len() - 1]
    )
    .into())
}
