//! Tests faults of a Redis Cluster.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use crate::callers::Callers;
use crate::servers::RedisCluster;
use crate::shop::Shop;
use crate::{ROOM, rate, until};

/// How long there is no fault, before and after.
const QUIET: Duration = Duration::from_millis(1_500);

/// The Cluster's slot of one of our shards, of which each master has some.
fn slot(cluster: &RedisCluster) -> u16 {
    cluster.slot_of("{delayline:wakes:0}")
}

/// Does `harm` to a Cluster under load.
async fn under_load(harm: impl AsyncFnOnce(&mut RedisCluster)) {
    let _room = ROOM.acquire().await.unwrap();
    let mut cluster = block_in_place(RedisCluster::start);
    let shop = Arc::new(Shop::open(&cluster.url()).await);
    let callers = Callers::start(&shop);
    let in_half_a_second = rate() as u64 / 2;
    sleep(QUIET).await;
    until("wake-ups come through Redis", || {
        shop.received() > in_half_a_second
    })
    .await;

    let began = Instant::now();
    harm(&mut cluster).await;
    println!("took {:.1?}", began.elapsed());
    let before = shop.received();
    sleep(QUIET).await;
    until("wake-ups come through Redis again", || {
        shop.received() > before + in_half_a_second
    })
    .await;
    callers.assert_none_failed().await;
    Arc::into_inner(shop).unwrap().assert_each_ran_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_is_killed_and_its_replica_promoted() {
    under_load(async |cluster| {
        block_in_place(|| {
            let slot = slot(cluster);
            let master = cluster.master_of(slot);
            cluster.kill(master);
            cluster.wait_for_failover(slot, master);
        });
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_moves_to_another_master() {
    under_load(async |cluster| {
        let slot = slot(cluster);
        let to = (cluster.master_of(slot) + 1) % 3;
        let migration = cluster.begin_migration(slot, to);
        // For a while one of its keys is there and the others are not.
        migration.move_some(1);
        sleep(QUIET).await;
        block_in_place(|| {
            migration.move_keys();
            migration.finish();
        });
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_masters_forget_everything() {
    under_load(async |cluster| block_in_place(|| cluster.ask_masters(&["FLUSHALL"]))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_masters_forget_the_scripts() {
    under_load(async |cluster| block_in_place(|| cluster.ask_masters(&["SCRIPT", "FLUSH"]))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_connections_are_cut() {
    under_load(async |cluster| {
        block_in_place(|| {
            for kind in ["normal", "pubsub"] {
                cluster.ask_masters(&["CLIENT", "KILL", "TYPE", kind]);
            }
        });
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_redis_hangs_for_ten_seconds() {
    under_load(async |cluster| {
        for node in cluster.nodes() {
            cluster.signal(node, "STOP");
        }
        sleep(Duration::from_secs(10)).await;
        for node in cluster.nodes() {
            cluster.signal(node, "CONT");
        }
    })
    .await;
}
