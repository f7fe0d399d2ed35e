//! The library over brokers: a scheduler and a worker with their default settings.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline::stats::Stats;
use delayline::{NewTask, Scheduled, defaults};

use super::super::Error;
use super::super::figure::Measured;
use super::super::ledger::{Faults, Ledger};
use super::super::ours::Ours;
use super::super::side::{KIND, PATIENCE, PAYLOAD, Side as _, key};
use super::super::work::drained;
use super::super::workload::BATCH;
use super::calling::{by_callers, planned, steadily};
use super::lengths::Chain;

/// After how long what is only scheduled is due: by the level of an hour, however slowly it is written.
const LONG: Duration = Duration::from_secs(3_660);
/// How many tasks of a burst wait to be sent at the most. One that is sent later than the tolerance after it was scheduled
/// goes by a shorter level than the others.
const UNSENT: usize = 2_000;

/// How late the tasks of a steady load start, each after a chain; and how many hops they took at the mean, which are fewer
/// than planned where some came so late that another was left out.
pub(super) async fn steady(ours: Ours, tasks: usize, chain: &Chain) -> Result<Measured, Error> {
    let clock = ours.clock().await?;
    let (begin, due) = planned(clock, tasks, chain.delay);
    let ledger = Arc::new(Ledger::new(clock, due));
    let asking = steadily(tasks, begin, |number| {
        add(ours.clone(), Arc::clone(&ledger), vec![number], chain.delay)
    });
    let ((), measured) = tokio::try_join!(asking, drained(&ours, &ledger))?;
    let hops = ours.scheduler.stats().sent_by_carrier as f64 / tasks as f64;
    ours.close().await?;
    Ok(Measured {
        hops_each: Some(hops),
        ..measured
    })
}

/// How many tasks have their row and their wake-up on a broker.
pub(super) async fn schedule(ours: Ours, most: usize, time: Duration) -> Result<Measured, Error> {
    let begun = Instant::now();
    let caller = ours.clone();
    let call = move |number| {
        let ours = caller.clone();
        async move { write(&ours, &[number], LONG).await.map(drop) }
    };
    let count = by_callers(most, time, call).await?;
    until_sent(&ours, count).await?;
    let seconds = begun.elapsed().as_secs_f64();
    // More are not counted.
    let counted = count.min(defaults::FORECAST_LIMIT);
    let pending = ours.pending().await?.all;
    // Of tasks whose wake-ups brokers did not take nothing is lost, but they do not count.
    let on_brokers = usize::try_from(ours.scheduler.stats().sent_by_carrier)?;
    ours.close().await?;
    Ok(Measured {
        tasks: on_brokers,
        seconds: Some(seconds),
        faults: Faults {
            lost: counted.saturating_sub(pending),
            twice: pending.saturating_sub(counted),
            early: 0,
        },
        ..Measured::default()
    })
}

/// How long it takes, from the first arrival on, until all tasks that come out of a level at once have run, or have taken
/// their second hop if they have one.
pub(super) async fn burst(ours: Ours, tasks: usize, chain: &Chain) -> Result<Measured, Error> {
    let clock = ours.clock().await?;
    let soonest = clock.now() / 1_000 + chain.delay.as_millis() as i64;
    let ledger = Arc::new(Ledger::new(clock, vec![soonest; tasks]));
    let adding = async {
        for numbers in Vec::from_iter(0..tasks).chunks(BATCH) {
            until_sent(&ours, numbers[0].saturating_sub(UNSENT)).await?;
            add(ours.clone(), Arc::clone(&ledger), numbers.to_vec(), chain.delay).await?;
        }
        Ok::<_, Error>(())
    };
    let working = async {
        let ((), measured) = tokio::try_join!(adding, drained(&ours, &ledger))?;
        Ok::<_, Error>(measured)
    };
    let all = tasks as u64;
    let timing = async {
        until(&ours, |stats| stats.received > 0).await?;
        let first = ledger.now();
        if chain.hops > 1 {
            until(&ours, |stats| stats.hops >= all).await?;
        }
        Some((first, ledger.now()))
    };
    let (measured, times) = {
        let (mut working, mut timing) = (pin!(working), pin!(timing));
        tokio::select! {
            // The times, if both are there.
            biased;
            times = &mut timing => (working.await?, times),
            measured = &mut working => (measured?, None),
        }
    };
    let seconds = times.map(|(first, hopped)| match chain.hops {
        1 => ledger.seconds_from(first / 1_000),
        _ => (hopped - first) as f64 / 1e6,
    });
    ours.close().await?;
    Ok(Measured {
        seconds,
        // By which level they came is what matters, and not how late.
        late: Vec::new(),
        ..measured
    })
}

/// Adds tasks that are due after a delay, in one call, and says so in a ledger.
async fn add(ours: Ours, ledger: Arc<Ledger>, numbers: Vec<usize>, delay: Duration) -> Result<(), Error> {
    let soonest = ledger.now() / 1_000 + delay.as_millis() as i64;
    let dues = write(&ours, &numbers, delay).await?;
    for (&number, due) in numbers.iter().zip(dues) {
        // The delay begins when the task is written.
        ledger.put_off(number, due.max(soonest));
    }
    Ok(())
}

/// Writes tasks that are due after a delay, in one call; gives when each is due, in ms.
async fn write(ours: &Ours, numbers: &[usize], delay: Duration) -> Result<Vec<i64>, Error> {
    let new = |&number: &usize| NewTask::from_bytes(KIND, PAYLOAD).key(key(number)).after(delay);
    let answers = match numbers {
        [number] => vec![ours.scheduler.schedule(new(number)).await?],
        numbers => ours.scheduler.schedule_all(numbers.iter().map(new)).await?,
    };
    let due = |answer: Scheduled| match answer {
        Scheduled::New(task) => Ok(task.due_at.as_millis()),
        other => Err(format!("task {} was there already", other.task().id).into()),
    };
    answers.into_iter().map(due).collect()
}

/// Waits until so many wake-ups have left, by whatever way.
async fn until_sent(ours: &Ours, count: usize) -> Result<(), Error> {
    let is_sent =
        |stats: &Stats| stats.sent_by_carrier + stats.sent_precise + stats.left_to_sweep >= count as u64;
    let sent = until(ours, is_sent).await;
    sent.ok_or_else(|| "wake-ups were not sent in time".into())
}

/// Waits until the numbers of a scheduler are so; none if they are not in time.
async fn until(ours: &Ours, reached: impl Fn(&Stats) -> bool) -> Option<()> {
    let end = Instant::now() + PATIENCE;
    while !reached(&ours.scheduler.stats()) {
        if Instant::now() >= end {
            return None;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    Some(())
}
