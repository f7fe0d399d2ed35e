//! Tests a worker with claims in advance whose machine is suspended for longer than its lease: a task that was
//! cancelled meanwhile does not start when the machine wakes.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::Path;
use std::time::Duration;

use delayline::store::RedisStore;
use delayline::{NewTask, Outcome, Policy, Scheduler, TaskId, Worker};
use tokio::time::{Instant, sleep};

use crate::process::Process;
use crate::redis_servers::RedisServer;
use crate::suspend::Still;

const KIND: &str = "order.cancel";
const LEASE: Duration = Duration::from_secs(2);
const CONCURRENCY: usize = 8;
const PREFETCH: usize = 64;
/// Makes a test fail that would hang.
const SAFETY: Duration = Duration::from_secs(60);

const REDIS: &str = "DELAYLINE_NEMESIS_SUSPENDED";
const FOLDER: &str = "DELAYLINE_NEMESIS_FOLDER";

/// The file in which starts are recorded, a line each.
const STARTS: &str = "starts";
/// Handlers go on once this file is there.
const GO: &str = "go";

/// Runs the worker's process; does nothing in any other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn process() {
    let (Ok(redis), Ok(folder)) = (env::var(REDIS), env::var(FOLDER)) else {
        return;
    };
    let folder = Path::new(&folder).to_owned();
    let scheduler = Scheduler::new(RedisStore::new(&redis).unwrap());
    let policy = Policy::new().concurrency(CONCURRENCY).prefetch(PREFETCH);
    let worker = Worker::new(&scheduler).lease(LEASE);
    let worker = worker.handle_with(KIND, policy, move |(), context| {
        let folder = folder.clone();
        async move {
            let mut starts = OpenOptions::new().append(true).open(folder.join(STARTS))?;
            starts.write_all(format!("{}\n", context.id()).as_bytes())?;
            while !folder.join(GO).exists() {
                sleep(Duration::from_millis(2)).await;
            }
            Ok(Outcome::Done)
        }
    });
    worker.run().await.unwrap();
}

fn started(folder: &Path) -> Vec<TaskId> {
    let starts = fs::read_to_string(folder.join(STARTS)).unwrap();
    starts.lines().map(|id| id.parse().unwrap()).collect()
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < SAFETY, "waited too long: {what}");
        sleep(Duration::from_millis(10)).await;
    }
}

async fn what_was_cancelled_does_not_start(still: Still) {
    let redis = RedisServer::start();
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(STARTS), "").unwrap();
    let store = RedisStore::new(&redis.url()).unwrap();
    let scheduler = Scheduler::new(store);
    let tasks = (0..CONCURRENCY + PREFETCH).map(|_| NewTask::new(KIND, &()));
    let scheduled = scheduler.schedule_all(tasks).await.unwrap();

    let environment = [(REDIS, redis.url().into()), (FOLDER, folder.path().into())];
    let process = Process::start("suspended::process", &environment);
    until("as many run as may", || {
        started(folder.path()).len() == CONCURRENCY
    })
    .await;
    // The others are claimed: all leases are there to end.
    let stopped = process.stop(still);
    fs::write(folder.path().join(GO), "").unwrap();
    for task in &scheduled {
        let began = Instant::now();
        // Once its lease has ended.
        while !scheduler.cancel(task.task().id).await.unwrap().is_done() {
            assert!(began.elapsed() < SAFETY, "{} is not cancelled", task.task().id);
            sleep(Duration::from_millis(50)).await;
        }
    }
    let before = started(folder.path());
    assert_eq!(before.len(), CONCURRENCY);

    drop(stopped);
    // Tasks that wait in the worker would start before this one.
    let last = scheduler
        .schedule(NewTask::new(KIND, &()))
        .await
        .unwrap()
        .task()
        .id;
    until("the worker goes on", || started(folder.path()).contains(&last)).await;
    let after = started(folder.path());
    let wrongly = after[before.len()..].iter().filter(|&&id| id != last).count();
    assert_eq!(wrongly, 0, "cancelled tasks were started");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_stop_nothing_starts_that_was_cancelled() {
    what_was_cancelled_does_not_start(Still::Stopped).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_suspend_nothing_starts_that_was_cancelled() {
    what_was_cancelled_does_not_start(Still::Suspended).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_pause_that_only_the_clock_of_the_day_shows_nothing_starts_that_was_cancelled() {
    what_was_cancelled_does_not_start(Still::Paused).await;
}
