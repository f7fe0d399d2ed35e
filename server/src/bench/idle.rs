//! What is asked of a server while nothing is due, and how soon an earlier task starts then.

use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::Error;
use super::figure::Measured;
use super::ledger::Faults;
use super::side::{Item, Side, Verb};
use super::work::filled_for_long;

/// For how long a worker is left alone before it is watched.
const SETTLES: Duration = Duration::from_secs(2);
/// How far away the earlier tasks are that come then, in ms, and how many there are.
const EARLIER: i64 = 20;
const EARLIER_ONES: usize = 200;
/// After how long one that does not start is lost.
const PATIENCE: Duration = Duration::from_secs(10);

/// For how long it is watched: with fewer tasks than usual, shorter.
fn watched(tasks: usize) -> Duration {
    Duration::from_secs_f64((tasks as f64 / 10_000.0).clamp(1.0, 10.0))
}

/// A side that works until it is dropped.
pub(crate) trait Working: Side {
    /// Starts tasks as they come, and says of each its number.
    fn work(self, started: UnboundedSender<usize>) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Fills a side, watches it, and then has it start a few. `asked` says how much the server was asked so far; `sender` is
/// who schedules those few.
pub(crate) async fn measure<S: Working>(
    side: S,
    sender: S,
    tasks: usize,
    asked: &impl AsyncFn() -> Result<Option<f64>, Error>,
) -> Result<Vec<Measured>, Error> {
    let written = filled_for_long(&side, tasks).await?;
    let clock = side.clock().await?;
    let (started, mut starts) = unbounded_channel();
    let mut working = JoinSet::new();
    working.spawn(side.work(started));
    tokio::time::sleep(SETTLES).await;
    let (begun, before, worked) = (Instant::now(), asked().await?, processor_ms());
    tokio::time::sleep(watched(tasks)).await;
    let (after, works) = (asked().await?, processor_ms());
    let seconds = begun.elapsed().as_secs_f64();

    let mut faults = Faults::lost(tasks - written.min(tasks));
    let mut late = Vec::new();
    for number in tasks..tasks + EARLIER_ONES.min(tasks) {
        let due = clock.now() / 1_000 + EARLIER;
        faults.lost += 1 - sender.apply(Verb::Add, &[Item { number, due }]).await?.min(1);
        let start = tokio::time::timeout(PATIENCE, starts.recv()).await;
        let micros = clock.now() - due * 1_000;
        match start {
            Ok(Some(started)) if started == number => {
                faults.early += usize::from(clock.is_early(micros));
                late.push(micros.max(0) as f64 / 1e3);
            }
            // Of one that was started before, or is not due for long.
            Ok(Some(started)) if started < tasks => faults.early += 1,
            Ok(Some(_)) => faults.twice += 1,
            Ok(None) | Err(_) => faults.lost += 1,
        }
    }
    if let Some(ended) = working.try_join_next() {
        ended??;
        return Err("the worker has ended by itself".into());
    }
    working.shutdown().await;
    sender.close().await?;
    late.sort_by(f64::total_cmp);
    Ok(vec![Measured {
        tasks,
        late,
        asked: before
            .zip(after)
            .map(|(before, after)| (after - before) / seconds),
        processor: worked
            .zip(works)
            .map(|(worked, works)| (works - worked) / seconds),
        faults,
        ..Measured::default()
    }])
}

/// What all threads of this process have taken of its processors so far, in ms; none where that is not told.
fn processor_ms() -> Option<f64> {
    let mut nanos = 0_u64;
    for thread in std::fs::read_dir("/proc/self/task").ok()? {
        // One that has just ended is not there any more.
        let Ok(times) = std::fs::read_to_string(thread.ok()?.path().join("schedstat")) else {
            continue;
        };
        nanos += times.split(' ').next()?.parse::<u64>().ok()?;
    }
    Some(nanos as f64 / 1e6)
}
