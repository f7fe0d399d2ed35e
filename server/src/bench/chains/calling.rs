//! How tasks and messages are asked for: at a steady pace, or by many callers as fast as they can.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};

use super::super::Error;
use super::super::ledger::ServerClock;
use super::super::workload::CALLERS;

/// The steady pace: 500 a second.
pub(super) const EVERY: Duration = Duration::from_millis(2);
/// What consumers have to start.
const LEAD: Duration = Duration::from_secs(1);

/// When a steady load begins, and when each of it is due by `clock`, in ms: `delay` after it is asked for.
pub(super) fn planned(clock: ServerClock, tasks: usize, delay: Duration) -> (Instant, Vec<i64>) {
    let first = clock.now() / 1_000 + (LEAD + delay).as_millis() as i64;
    let due = |number| first + number * EVERY.as_millis() as i64;
    (Instant::now() + LEAD, (0..tasks as i64).map(due).collect())
}

/// Calls at the steady pace, whether earlier calls have ended or not.
pub(super) async fn steadily<F>(tasks: usize, begin: Instant, call: impl Fn(usize) -> F) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut tick = interval_at(begin, EVERY);
    let mut calls = JoinSet::new();
    for number in 0..tasks {
        tick.tick().await;
        calls.spawn(call(number));
    }
    while let Some(called) = calls.join_next().await {
        called??;
    }
    Ok(())
}

/// Calls by many callers, until there are `most` or the time is over; gives how many there were.
pub(super) async fn by_callers<F>(
    most: usize,
    time: Duration,
    call: impl Fn(usize) -> F + Clone + Send + 'static,
) -> Result<usize, Error>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let (end, next) = (Instant::now() + time, Arc::new(AtomicUsize::new(0)));
    let mut callers = JoinSet::new();
    for _ in 0..CALLERS {
        let (call, next) = (call.clone(), Arc::clone(&next));
        callers.spawn(async move {
            let mut count = 0;
            while Instant::now() < end {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= most {
                    break;
                }
                call(number).await?;
                count += 1;
            }
            Ok::<_, Error>(count)
        });
    }
    let mut count = 0;
    while let Some(caller) = callers.join_next().await {
        count += caller??;
    }
    Ok(count)
}
