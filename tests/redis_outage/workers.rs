//! Workers that die, one after the other.

use std::collections::BTreeSet;
use std::time::Duration;

use delayline::{NewTask, TaskId};
use tokio::task::block_in_place;
use tokio::time::{Instant, interval, sleep};

use crate::child::{Process, scheduler};
use crate::servers::RedisCluster;
use crate::service::{OnSqlite, Service};
use crate::shop::KIND;
use crate::{ROOM, SAFETY};

const PROCESSES: usize = 4;
const TASKS: usize = 10_000;
/// How many are scheduled each second.
const RATE: usize = 400;
const KILLED_EVERY: Duration = Duration::from_secs(5);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_four_workers_one_after_the_other_is_killed_and_each_effect_happens_once() {
    let _room = ROOM.acquire().await.unwrap();
    let cluster = block_in_place(RedisCluster::start);
    let service = OnSqlite::new().await;
    let (database, redis) = (service.url().to_owned(), cluster.url());
    let start = || Process::start(&database, &redis);
    let scheduler = scheduler(&service, &redis);

    let scheduling = tokio::spawn(async move {
        let mut ids = BTreeSet::<TaskId>::new();
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

    let ids = scheduling.await.unwrap();
    let expected: Vec<_> = ids.iter().map(TaskId::to_string).collect();
    let waiting = Instant::now();
    let mut effects = service.effects().await;
    while effects.len() < expected.len() && waiting.elapsed() < SAFETY {
        sleep(Duration::from_millis(100)).await;
        effects = service.effects().await;
    }
    println!(
        "{killed} killed; all done {:.1?} after the last",
        waiting.elapsed()
    );
    let lost = expected.len()
        - expected
            .iter()
            .filter(|id| effects.binary_search(id).is_ok())
            .count();
    let early = effects.iter().filter(|effect| effect.ends_with("early")).count();
    assert_eq!(
        (lost, early, effects.len()),
        (0, 0, TASKS),
        "lost, early, effects"
    );
    for worker in &mut workers {
        worker.kill();
    }
}
