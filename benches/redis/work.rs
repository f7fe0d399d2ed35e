//! What is measured.

use std::pin::Pin;
use std::time::{Duration, Instant};

use crate::side::{Id, Side};
use crate::{Error, connection};

const CALLERS: usize = 64;
const BATCH: usize = 500;
const HOUR: Duration = Duration::from_secs(3_600);

/// Some values that are measured together, by their names.
pub(crate) struct Figure {
    pub(crate) names: &'static [&'static str],
    work: Work,
}

enum Work {
    Enqueue,
    Burst(usize),
    Steady,
    Memory,
    Change,
}

pub(crate) const FIGURES: &[Figure] = &[
    Figure {
        names: &[
            "W1 100,000 of 64 callers, 1,000/s",
            "W1 100,000 in batches of 500, 1,000/s",
        ],
        work: Work::Enqueue,
    },
    Figure {
        names: &["W2 20,000 due at once until finished, ms"],
        work: Work::Burst(20_000),
    },
    Figure {
        names: &["W2L 200,000 due at once until finished, ms"],
        work: Work::Burst(200_000),
    },
    Figure {
        names: &[
            "W3 20,000, one due each ms, lateness p50, ms",
            "W3 20,000, one due each ms, lateness p99, ms",
        ],
        work: Work::Steady,
    },
    Figure {
        names: &["W4 1,000,000 pending, bytes of used_memory each"],
        work: Work::Memory,
    },
    Figure {
        names: &[
            "W6 50,000 cancelled by 64 callers, 1,000/s",
            "W6 50,000 rescheduled by 64 callers, 1,000/s",
            "W6 50,000 cancelled in batches of 500, 1,000/s",
            "W6 50,000 rescheduled in batches of 500, 1,000/s",
        ],
        work: Work::Change,
    },
];

impl Figure {
    pub(crate) async fn of<S: Side>(&self, side: &S) -> Result<Vec<f64>, Error> {
        match self.work {
            Work::Enqueue => enqueue(side).await,
            Work::Burst(count) => burst(side, count).await,
            Work::Steady => steady(side).await,
            Work::Memory => memory(side).await,
            Work::Change => change(side).await,
        }
    }
}

type Step<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// Does something with each part, by so many callers at once; gives how many thousand ids a second.
async fn rate<S: Side>(
    side: &S,
    callers: usize,
    parts: Vec<Vec<Id>>,
    step: for<'a> fn(&'a S, &'a [Id]) -> Step<'a>,
) -> Result<f64, Error> {
    let count: usize = parts.iter().map(Vec::len).sum();
    let share = parts.len().div_ceil(callers);
    let begun = Instant::now();
    let mut working = Vec::new();
    for parts in parts.chunks(share) {
        let (side, parts) = (side.clone(), parts.to_vec());
        working.push(tokio::spawn(async move {
            for part in &parts {
                step(&side, part).await?;
            }
            Ok::<_, Error>(())
        }));
    }
    for working in working {
        working.await??;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64() / 1e3)
}

async fn enqueue<S: Side>(side: &S) -> Result<Vec<f64>, Error> {
    let step: for<'a> fn(&'a S, &'a [Id]) -> Step<'a> = |side, ids| Box::pin(side.add(ids, HOUR));
    let singles = rate(side, CALLERS, parts(0..100_000, 1), step).await?;
    let batches = rate(side, 1, parts(100_000..200_000, BATCH), step).await?;
    Ok(vec![singles, batches])
}

async fn change<S: Side>(side: &S) -> Result<Vec<f64>, Error> {
    let cancel: for<'a> fn(&'a S, &'a [Id]) -> Step<'a> = |side, ids| Box::pin(side.cancel(ids));
    let reschedule: for<'a> fn(&'a S, &'a [Id]) -> Step<'a> =
        |side, ids| Box::pin(side.reschedule(ids, 2 * HOUR));
    let mut figures = Vec::new();
    for (callers, size) in [(CALLERS, 1), (1, BATCH)] {
        for part in parts(0..100_000, BATCH) {
            side.add(&part, HOUR).await?;
        }
        figures.push(rate(side, callers, parts(0..50_000, size), cancel).await?);
        figures.push(rate(side, callers, parts(50_000..100_000, size), reschedule).await?);
    }
    Ok(figures)
}

async fn burst<S: Side>(side: &S, count: usize) -> Result<Vec<f64>, Error> {
    let lead = Duration::from_secs(1 + count as u64 / 20_000);
    let due = Instant::now() + lead;
    for part in parts(0..count, BATCH) {
        side.add(&part, due.saturating_duration_since(Instant::now()))
            .await?;
    }
    if Instant::now() >= due {
        return Err("adding took longer than expected".into());
    }
    let late = side.drain(count, move |_| due).await?;
    let last = late.into_iter().max().unwrap_or_default();
    Ok(vec![last.as_secs_f64() * 1e3])
}

async fn steady<S: Side>(side: &S) -> Result<Vec<f64>, Error> {
    const COUNT: usize = 20_000;
    let first = Instant::now() + Duration::from_secs(1);
    let due = move |number: u128| first + Duration::from_millis(number as u64);
    for part in parts(0..COUNT, BATCH) {
        let now = Instant::now();
        let delays = part
            .iter()
            .map(|id| (*id, due(u128::from_be_bytes(*id)).saturating_duration_since(now)));
        side.add_each(&delays.collect::<Vec<_>>()).await?;
    }
    let mut late = side.drain(COUNT, move |id| due(u128::from_be_bytes(*id))).await?;
    late.sort();
    let quantile = |part: f64| late[((late.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
    Ok(vec![quantile(0.5), quantile(0.99)])
}

async fn memory<S: Side>(side: &S) -> Result<Vec<f64>, Error> {
    const COUNT: usize = 1_000_000;
    let url = std::env::args()
        .skip(1)
        .find(|argument| !argument.starts_with("--"));
    let mut connection = connection(&url.unwrap_or_default()).await?;
    let before = info(&mut connection, "memory", "used_memory").await?;
    for part in parts(0..COUNT, BATCH) {
        side.add(&part, HOUR).await?;
    }
    let after = info(&mut connection, "memory", "used_memory").await?;
    Ok(vec![(after - before) / COUNT as f64])
}

/// One number of `INFO`.
pub(crate) async fn info(
    connection: &mut redis::aio::MultiplexedConnection,
    section: &str,
    field: &str,
) -> Result<f64, Error> {
    let text: String = redis::cmd("INFO").arg(section).query_async(connection).await?;
    let mut lines = text.lines().filter_map(|line| line.split_once(':'));
    let (_, value) = lines
        .find(|(name, _)| *name == field)
        .ok_or("INFO lacks a field")?;
    Ok(value.parse()?)
}

fn parts(numbers: std::ops::Range<usize>, size: usize) -> Vec<Vec<Id>> {
    let ids: Vec<Id> = numbers.map(|number| (number as u128).to_be_bytes()).collect();
    ids.chunks(size).map(<[Id]>::to_vec).collect()
}
