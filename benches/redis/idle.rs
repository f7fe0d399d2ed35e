//! What is asked of a server while nothing is due, and how soon an earlier one comes then.

use std::time::{Duration, Instant};

use delayline::backend::{Backend, Departure, RedisBackend, Wake};
use delayline::store::RedisStore;
use delayline::{Context, NewTask, Outcome, Policy, Scheduler, TaskId, Worker};
use tokio::sync::mpsc;

use crate::work::info;
use crate::{Error, connection};

const WORKERS: usize = 4;
const PENDING: usize = 100_000;
const BATCH: usize = 500;
const IDLE_FOR: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3_600);
/// How far away the earlier ones are that come then, and how many there are.
const EARLIER: Duration = Duration::from_millis(20);
const EARLIER_ONES: usize = 200;

pub(crate) const NAMES: &[&str] = &[
    "W5 100,000 pending, none due, 4 workers: commands/s",
    "W5 an earlier one then, lateness p50, ms",
    "W5 an earlier one then, lateness p99 of 200, ms",
];

/// Of wake-ups alone.
pub(crate) async fn wakes(url: &str) -> Result<Vec<f64>, Error> {
    let sender = RedisBackend::new(url)?;
    let departure = |number: usize, delay| Departure {
        wake: Wake {
            id: TaskId::from_bytes((number as u128).to_be_bytes()),
            kind: "bench".into(),
            version: 1,
        },
        delay,
    };
    for first in (0..PENDING).step_by(BATCH) {
        let batch: Vec<_> = (first..first + BATCH)
            .map(|number| departure(number, HOUR))
            .collect();
        sender.send(&batch).await?;
    }
    let (came, mut comes) = mpsc::unbounded_channel();
    let mut working = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        let (worker, came) = (RedisBackend::new(url)?, came.clone());
        working.spawn(async move {
            while let Ok(arrivals) = worker.receive(BATCH).await {
                for _ in &arrivals {
                    // Nobody hears of the last ones.
                    let _ = came.send(Instant::now());
                }
                worker.acknowledge(arrivals).await;
            }
        });
    }
    let commands = commands_while_idle(url).await?;
    let mut late = Vec::new();
    for number in 0..EARLIER_ONES {
        let due = Instant::now() + EARLIER;
        sender.send(&[departure(PENDING + number, EARLIER)]).await?;
        late.push(lateness(due, &mut comes).await?);
    }
    Ok(figures(commands, late))
}

/// Of rows.
pub(crate) async fn rows(url: &str) -> Result<Vec<f64>, Error> {
    let scheduler = Scheduler::new(RedisStore::new(url)?);
    for _ in 0..PENDING / BATCH {
        let tasks = (0..BATCH).map(|_| NewTask::from_bytes("bench", [b'x'; 100]).after(HOUR));
        scheduler.schedule_all(tasks).await?;
    }
    let (came, mut comes) = mpsc::unbounded_channel();
    let mut working = tokio::task::JoinSet::new();
    for _ in 0..WORKERS {
        // As in a process of its own.
        let scheduler = Scheduler::new(RedisStore::new(url)?);
        let came = came.clone();
        let handler = move |_: Context| {
            // Nobody hears of the last ones.
            let _ = came.send(Instant::now());
            async { Ok(Outcome::Done) }
        };
        let worker = Worker::new(&scheduler).handle_bytes("bench", Policy::new(), handler);
        working.spawn(worker.run_until(std::future::pending::<()>()));
    }
    let commands = commands_while_idle(url).await?;
    let mut late = Vec::new();
    for _ in 0..EARLIER_ONES {
        let due = Instant::now() + EARLIER;
        scheduler
            .schedule(NewTask::from_bytes("bench", [b'x'; 100]).after(EARLIER))
            .await?;
        late.push(lateness(due, &mut comes).await?);
    }
    Ok(figures(commands, late))
}

async fn commands_while_idle(url: &str) -> Result<f64, Error> {
    // Until all know each other.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut connection = connection(url).await?;
    let before = info(&mut connection, "stats", "total_commands_processed").await?;
    tokio::time::sleep(IDLE_FOR).await;
    let after = info(&mut connection, "stats", "total_commands_processed").await?;
    // But the one that asks.
    Ok((after - before - 1.0) / IDLE_FOR.as_secs_f64())
}

async fn lateness(due: Instant, comes: &mut mpsc::UnboundedReceiver<Instant>) -> Result<f64, Error> {
    let at = comes.recv().await.ok_or("all workers have ended")?;
    Ok(at.saturating_duration_since(due).as_secs_f64() * 1e3)
}

fn figures(commands: f64, mut late: Vec<f64>) -> Vec<f64> {
    late.sort_by(f64::total_cmp);
    vec![commands, late[late.len() / 2], late[late.len() * 99 / 100]]
}
