//! What a store costs beside the bare statements of the same driver: the ratio of the two, measured in turns.
//!
//! ```sh
//! cargo bench --bench stores --features postgres,mysql -- sqlite postgres://… mysql://…
//! ```
//!
//! The bare statements write the same rows into the same table with the same indexes. Everything of the library has its
//! default settings. Each figure is the median of three runs; only figures of one run of this program can be compared.

mod limit;
mod sides;

use std::time::{Duration, Instant};

use delayline::clock::Clock;
use delayline::store::Store as _;
use delayline::{NewTask, Outcome, Scheduler, Worker};

use crate::limit::Limit;
use crate::sides::Side;

type Error = Box<dyn std::error::Error + Send + Sync>;

const KIND: &str = "bench";
const ROUNDS: usize = 3;
const BATCH: usize = 500;
/// How many write batches at once, and claim and finish at once, where statements are bare.
const CONNECTIONS: usize = 4;
const CALLERS: usize = 64;
const HOUR: Duration = Duration::from_secs(3_600);

#[tokio::main]
async fn main() -> Result<(), Error> {
    let mut places: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| !argument.starts_with("--"))
        .collect();
    if places.is_empty() {
        places.push("sqlite".to_owned());
    }
    for place in places {
        match place
            .split_once("://")
            .map_or(place.as_str(), |(scheme, _)| scheme)
        {
            #[cfg(feature = "sqlite")]
            "sqlite" => compare::<sides::Sqlite>(&place).await?,
            #[cfg(feature = "postgres")]
            "postgres" => compare::<sides::Postgres>(&place).await?,
            #[cfg(feature = "mysql")]
            "mysql" => compare::<sides::MySql>(&place).await?,
            _ => {
                return Err(format!(
                    "{place}: allowed are sqlite, and URLs of databases whose feature is on"
                )
                .into());
            }
        }
    }
    Ok(())
}

/// Every workload on one database.
async fn compare<S: Side>(place: &str) -> Result<(), Error> {
    println!("\n{}", S::NAME);
    println!("{:<44} {:>10} {:>10} {:>7}", "", "bare", "delayline", "ratio");
    report::<S>(
        place,
        "100,000 rows in batches of 500, rows/s",
        Work::Batches(100_000),
        Ratio::Rate,
    )
    .await?;
    report::<S>(
        place,
        "10,000 rows of 64 callers, rows/s",
        Work::Callers(10_000),
        Ratio::Rate,
    )
    .await?;
    let few = report::<S>(
        place,
        "20,000 due at once until finished, ms",
        Work::Burst(20_000),
        Ratio::Time,
    )
    .await?;
    let many = report::<S>(
        place,
        "200,000 due at once until finished, ms",
        Work::Burst(200_000),
        Ratio::Time,
    )
    .await?;
    let per_task = few.as_secs_f64() / many.as_secs_f64() * 10.0;
    println!("{:<44} {per_task:>29.2}", "tasks/s of 200,000 to those of 20,000");
    Ok(())
}

#[derive(Clone, Copy)]
enum Work {
    Batches(usize),
    Callers(usize),
    Burst(usize),
}

#[derive(Clone, Copy)]
enum Ratio {
    /// Ours to bare in rows a second: more is better.
    Rate,
    /// Ours to bare in time: less is better.
    Time,
}

/// Measures both sides in turns; gives our time.
async fn report<S: Side>(place: &str, name: &str, work: Work, ratio: Ratio) -> Result<Duration, Error> {
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let side = S::fresh(place).await?;
        bare.push(bare_time(&side, work).await?);
        side.remove().await?;
        let side = S::fresh(place).await?;
        ours.push(our_time(&side, work).await?);
        side.remove().await?;
    }
    let (bare, ours) = (median(bare), median(ours));
    let rows = match work {
        Work::Batches(rows) | Work::Callers(rows) | Work::Burst(rows) => rows as f64,
    };
    let (bare_secs, our_secs) = (bare.as_secs_f64(), ours.as_secs_f64());
    let (first, second, ratio) = match ratio {
        Ratio::Rate => (rows / bare_secs, rows / our_secs, bare_secs / our_secs),
        Ratio::Time => (bare_secs * 1e3, our_secs * 1e3, our_secs / bare_secs),
    };
    println!("{name:<44} {first:>10.0} {second:>10.0} {ratio:>7.2}");
    Ok(ours)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// The least work of the driver for the same effect.
async fn bare_time<S: Side>(side: &S, work: Work) -> Result<Duration, Error> {
    let limit = side.limit(CALLERS).await?;
    match work {
        Work::Batches(rows) => {
            let begun = Instant::now();
            in_parallel(
                CONNECTIONS,
                batches(rows),
                |limit, ids| async move { limit.insert(&ids).await },
                &limit,
            )
            .await?;
            Ok(begun.elapsed())
        }
        Work::Callers(rows) => {
            let singles = (0..rows).map(|_| vec![new_id()]).collect();
            let begun = Instant::now();
            in_parallel(
                CALLERS,
                singles,
                |limit, ids| async move { limit.insert(&ids).await },
                &limit,
            )
            .await?;
            Ok(begun.elapsed())
        }
        Work::Burst(rows) => {
            let batches = batches(rows);
            in_parallel(
                CONNECTIONS,
                batches.clone(),
                |limit, ids| async move { limit.insert(&ids).await },
                &limit,
            )
            .await?;
            let begun = Instant::now();
            let end = |limit: S::Limit, ids: Vec<uuid::Uuid>| async move {
                limit.claim(&ids).await?;
                limit.finish(&ids).await
            };
            in_parallel(CONNECTIONS, batches, end, &limit).await?;
            Ok(begun.elapsed())
        }
    }
}

/// The same through the library, as a service uses it.
async fn our_time<S: Side>(side: &S, work: Work) -> Result<Duration, Error> {
    let scheduler = Scheduler::new(side.store());
    match work {
        Work::Batches(rows) => {
            let begun = Instant::now();
            schedule_batches(&scheduler, rows, None).await?;
            Ok(begun.elapsed())
        }
        Work::Callers(rows) => {
            let begun = Instant::now();
            let mut callers = Vec::new();
            for _ in 0..CALLERS {
                let scheduler = scheduler.clone();
                callers.push(tokio::spawn(async move {
                    for _ in 0..rows / CALLERS {
                        scheduler.schedule(task().after(HOUR)).await?;
                    }
                    Ok::<_, delayline::Error>(())
                }));
            }
            for caller in callers {
                caller.await??;
            }
            Ok(begun.elapsed())
        }
        Work::Burst(rows) => {
            // Time enough to write them all before the first is due.
            let lead = Duration::from_secs(4 + rows as u64 / 10_000);
            let start = Instant::now();
            let due = side.store().now().await?.after(lead);
            schedule_batches(&scheduler, rows, Some(due)).await?;
            let begun = start + lead;
            if Instant::now() >= begun {
                return Err("writing the rows took longer than expected".into());
            }
            let worker = Worker::new(&scheduler)
                .handle_bytes(KIND, delayline::Policy::new(), |_| async { Ok(Outcome::Done) });
            let done = async {
                while scheduler.stats().done < rows as u64 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            };
            worker.run_until(done).await?;
            Ok(begun.elapsed())
        }
    }
}

fn task() -> NewTask {
    NewTask::from_bytes(KIND, [b'x'; 100])
}

async fn schedule_batches(
    scheduler: &Scheduler,
    rows: usize,
    due: Option<delayline::Timestamp>,
) -> Result<(), Error> {
    let mut callers = Vec::new();
    for _ in 0..CONNECTIONS {
        let scheduler = scheduler.clone();
        callers.push(tokio::spawn(async move {
            for _ in 0..rows / BATCH / CONNECTIONS {
                let tasks: Vec<_> = (0..BATCH)
                    .map(|_| match due {
                        Some(due) => task().at(due),
                        None => task().after(HOUR),
                    })
                    .collect();
                scheduler.schedule_all(tasks).await?;
            }
            Ok::<_, delayline::Error>(())
        }));
    }
    for caller in callers {
        caller.await??;
    }
    Ok(())
}

/// As the library makes them: in the order of time, which is where an index grows.
fn new_id() -> uuid::Uuid {
    let id = Clock::system().new_id();
    uuid::Uuid::from_bytes(*id.as_bytes())
}

fn batches(rows: usize) -> Vec<Vec<uuid::Uuid>> {
    (0..rows / BATCH)
        .map(|_| (0..BATCH).map(|_| new_id()).collect())
        .collect()
}

/// Does something with every batch, so many at once.
async fn in_parallel<L: Limit, F>(
    workers: usize,
    batches: Vec<Vec<uuid::Uuid>>,
    step: impl Fn(L, Vec<uuid::Uuid>) -> F + Clone + Send + 'static,
    limit: &L,
) -> Result<(), Error>
where
    F: Future<Output = Result<(), Error>> + Send + 'static,
{
    let mut working = Vec::new();
    let share = batches.len().div_ceil(workers);
    for batches in batches.chunks(share) {
        let (batches, limit, step) = (batches.to_vec(), limit.clone(), step.clone());
        working.push(tokio::spawn(async move {
            for batch in batches {
                step(limit.clone(), batch).await?;
            }
            Ok::<_, Error>(())
        }));
    }
    for worker in working {
        worker.await??;
    }
    Ok(())
}
