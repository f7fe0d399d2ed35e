//! Workers over Redis that die, one after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use delayline::store::RedisStore;
use delayline::{NewTask, Scheduler, TaskId};
use tokio::task::block_in_place;
use tokio::time::{Instant, interval, sleep};

use super::audit::Audit;
use super::child::{EFFECTS, Process, effects};
use super::shop::KIND;
use crate::servers::RedisCluster;
use crate::{ROOM, SAFETY, until};

const PROCESSES: usize = 4;
const TASKS: usize = 6_000;
/// How many are scheduled each second.
const RATE: usize = 400;
const KILLED_EVERY: Duration = Duration::from_secs(5);
/// How many handlers a worker runs at once, unless told: so many may have had their effect when it died, and not their end.
const UNSETTLED: usize = delayline::defaults::CONCURRENCY;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_four_workers_over_redis_one_after_the_other_is_killed_and_nothing_waits_for_it() {
    let _room = ROOM.acquire().await.unwrap();
    let cluster = block_in_place(RedisCluster::start);
    let start = || Process::start(&cluster.url());
    let scheduler = Scheduler::new(RedisStore::connect(&cluster.url()).unwrap());

    let scheduling = tokio::spawn(async move {
        let mut ids = Vec::<TaskId>::new();
        let mut tick = interval(Duration::from_secs(1) / 10);
        while ids.len() < TASKS {
            tick.tick().await;
            let delays = (0..RATE / 10).map(|_| Duration::from_millis(fastrand::u64(200..5_000)));
            let tasks = delays.map(|delay| NewTask::new(KIND, &()).after(delay));
            let answers = scheduler.schedule_all(tasks).await.unwrap();
            ids.extend(answers.iter().map(|answer| answer.task().id));
        }
        scheduler.close().await.unwrap();
        ids
    });
    let mut workers: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let mut killed = 0;
    while !scheduling.is_finished() {
        sleep(KILLED_EVERY).await;
        let worker = &mut workers[killed % PROCESSES];
        worker.kill();
        *worker = start();
        killed += 1;
    }
    // The last one has no successor: the others have what it had.
    workers[killed % PROCESSES].kill();
    workers.remove(killed % PROCESSES);
    killed += 1;

    let ids = scheduling.await.unwrap();
    let waiting = Instant::now();
    let audit = Audit::of(&cluster);
    tokio::time::timeout(
        SAFETY,
        until("no row is stuck", || block_in_place(|| audit.live() == 0)),
    )
    .await
    .unwrap();
    println!(
        "{killed} killed; all done {:.1?} after the last",
        waiting.elapsed()
    );
    block_in_place(|| audit.assert_consistent());
    let happened = block_in_place(|| happened(&cluster));
    let lost = ids
        .iter()
        .filter(|id| !happened.contains_key(&id.to_string()))
        .count();
    let early = happened.keys().filter(|name| name.starts_with("early")).count();
    assert_eq!((lost, early, happened.len()), (0, 0, TASKS), "lost, early, tasks");
    // Who died between an effect and the end of its row leaves both to somebody else.
    let again: Vec<_> = happened.values().filter(|count| **count > 1).collect();
    println!("{} effects were repeated", again.len());
    assert!(again.len() <= killed * UNSETTLED, "{} of {killed}", again.len());
    for worker in &mut workers {
        worker.kill();
    }
}

/// How often each task had its effect.
fn happened(cluster: &RedisCluster) -> BTreeMap<String, u64> {
    let mut happened = BTreeMap::new();
    for number in 0..EFFECTS {
        let key = effects(number);
        let mut admin = cluster.admin(cluster.master_of(cluster.slot_of(&key)));
        let found: BTreeMap<String, u64> = redis::cmd("HGETALL").arg(&key).query(&mut admin).unwrap();
        happened.extend(found);
    }
    happened
}
