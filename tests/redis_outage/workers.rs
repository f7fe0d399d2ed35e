//! Workers with a database and Redis that die, one after the other.

use std::time::Duration;

use delayline::TaskId;
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use crate::child::{self, scheduler};
use crate::kills::{Left, schedule_under_kills};
use crate::servers::RedisCluster;
use crate::service::{OnSqlite, Service};
use crate::{ROOM, SAFETY};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_four_workers_one_after_the_other_is_killed_and_each_effect_happens_once() {
    let _room = ROOM.acquire().await.unwrap();
    let cluster = block_in_place(RedisCluster::start);
    let service = OnSqlite::new().await;
    let (database, redis) = (service.url().to_owned(), cluster.url());
    let start = || child::start(&database, &redis);
    let scheduler = scheduler(&service, &redis);

    let Left {
        ids,
        mut workers,
        killed,
    } = schedule_under_kills(scheduler, start).await;
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
        (0, 0, ids.len()),
        "lost, early, effects"
    );
    for worker in &mut workers {
        worker.kill();
    }
}
