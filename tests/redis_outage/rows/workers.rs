//! Tests workers over Redis that die, one after the other.

use std::collections::BTreeMap;

use delayline::Scheduler;
use delayline::store::RedisStore;
use tokio::task::block_in_place;
use tokio::time::Instant;

use super::audit::Audit;
use super::child::{self, EFFECTS, effects};
use crate::ROOM;
use crate::kills::{Left, schedule_under_kills};
use crate::servers::RedisCluster;

/// How many handlers a worker runs at once by default: so many may have had their effect when it died, and not their
/// end.
const UNSETTLED: usize = delayline::defaults::CONCURRENCY;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_four_workers_over_redis_one_after_the_other_is_killed_and_nothing_waits_for_it() {
    let _room = ROOM.acquire().await.unwrap();
    let cluster = block_in_place(RedisCluster::start);
    let url = cluster.url();
    let start = || child::start(&url);
    let scheduler = Scheduler::new(RedisStore::new(&url).unwrap());
    let Left {
        ids,
        mut workers,
        killed,
    } = schedule_under_kills(scheduler, start).await;
    let waiting = Instant::now();
    let audit = Audit::of(&cluster);
    audit.wait_until_none_lives().await;
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
    assert_eq!(
        (lost, early, happened.len()),
        (0, 0, ids.len()),
        "lost, early, tasks"
    );
    // A worker that died between an effect and the end of its row leaves both to another.
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
