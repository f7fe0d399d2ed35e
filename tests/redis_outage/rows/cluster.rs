//! Tests faults of a Cluster that has the rows.

use std::sync::Arc;
use std::time::Duration;

use delayline::store::RedisStore;
use delayline::{Answer, NewTask, Scheduled, Scheduler, TaskId};
use tokio::task::block_in_place;
use tokio::time::{Instant, sleep};

use super::audit::{Audit, shard_of, tag};
use super::callers::{Callers, KEYS, key};
use super::shop::{Losses, Shop, Told};
use crate::servers::RedisCluster;
use crate::shop::KIND;
use crate::{ROOM, rate, until};

/// How long there is no fault, before and after.
const QUIET: Duration = Duration::from_secs(1);

/// A slot of Redis with some of the rows: each master has some.
fn slot(cluster: &RedisCluster) -> u16 {
    cluster.slot_of(&tag(0))
}

fn plain(url: &str) -> RedisStore {
    RedisStore::new(url).unwrap()
}

/// A store whose writes wait for a replica for so long.
fn confirmed(url: &str, timeout: Duration) -> RedisStore {
    RedisStore::builder(url).wait(1, timeout).build().unwrap()
}

/// Which tasks count.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Counted {
    All,
    /// Those that callers asked for after the fault.
    Later,
}

/// Does `harm` to a Cluster under load; returns what differs from the answers to callers. Asserts that all rows come to
/// their end, and that the service goes on.
async fn under_load(
    args: &[&str],
    open: impl FnOnce(&str) -> RedisStore,
    counted: Counted,
    harm: impl AsyncFnOnce(&mut RedisCluster),
) -> Losses {
    let _room = ROOM.acquire().await.unwrap();
    let mut cluster = block_in_place(|| RedisCluster::start_with(args));
    let shop = Arc::new(Shop::open(open(&cluster.url())));
    let callers = Callers::start(&shop);
    sleep(QUIET).await;
    until("tasks run", || shop.started() > rate() / 2).await;

    let began = Instant::now();
    harm(&mut cluster).await;
    println!("took {:.1?}", began.elapsed());
    let harmed = Instant::now();
    let before = shop.started();
    sleep(QUIET).await;
    until("tasks run again", || shop.started() > before + rate() / 2).await;
    callers.end().await;
    let audit = Audit::of(&cluster);
    audit.wait_until_none_lives().await;
    println!("all done {:.1?} after the harm", harmed.elapsed());
    assert_no_key_is_blocked(&shop, &audit).await;
    let since = (counted == Counted::Later).then_some(harmed);
    let losses = Arc::into_inner(shop).unwrap().end(since).await;
    let rows = block_in_place(|| audit.assert_consistent());
    println!("{rows} rows; {losses:?}");
    losses
}

/// Asserts that every key can be used, and that its task runs.
async fn assert_no_key_is_blocked(shop: &Shop, audit: &Audit<'_>) {
    let asked = Instant::now();
    let tasks = (0..KEYS).map(|number| NewTask::new(KIND, &()).key(key(number)));
    for answer in shop.scheduler.schedule_all(tasks).await.unwrap() {
        let Scheduled::New(task) = answer else {
            panic!("a key is blocked by {answer:?}");
        };
        let told = Told {
            due_at: task.due_at,
            cancelled_at: None,
            asked,
        };
        shop.tell([(task.id, told)]);
    }
    audit.wait_until_none_lives().await;
}

/// Kills a master, and waits until its replica has its place; returns the dead node.
fn kill_a_master(cluster: &mut RedisCluster) -> usize {
    let slot = slot(cluster);
    let master = cluster.master_of(slot);
    cluster.kill(master);
    cluster.wait_for_failover(slot, master);
    master
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_promoted_replica_has_comes_to_its_end() {
    let losses = under_load(&[], plain, Counted::All, async |cluster| {
        block_in_place(|| kill_a_master(cluster));
    })
    .await;
    losses.assert_only_the_last_moments();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_hangs_for_good_is_replaced() {
    let losses = under_load(&[], plain, Counted::All, async |cluster| {
        block_in_place(|| {
            let slot = slot(cluster);
            let master = cluster.master_of(slot);
            cluster.signal(master, "STOP");
            cluster.wait_for_failover(slot, master);
        });
    })
    .await;
    losses.assert_only_the_last_moments();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_that_the_promoted_replica_has_confirmed() {
    let open = |url: &str| confirmed(url, Duration::from_millis(200));
    let losses = under_load(&[], open, Counted::All, async |cluster| {
        block_in_place(|| {
            let dead = kill_a_master(cluster);
            // No replica confirms what the new master takes until it has one.
            cluster.restart(dead);
            cluster.wait_until_whole();
        });
    })
    .await;
    assert_eq!(losses.but_taken_over(), Losses::NONE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_move_to_another_master() {
    let losses = under_load(&[], plain, Counted::All, async |cluster| {
        let slot = slot(cluster);
        let to = (cluster.master_of(slot) + 1) % 3;
        let migration = cluster.begin_migration(slot, to);
        // For a while some of its keys are there and the others are not.
        migration.move_some(1);
        sleep(QUIET).await;
        block_in_place(|| {
            migration.move_keys();
            migration.finish();
        });
    })
    .await;
    // On a busy machine a lease may have ended while the keys moved.
    assert_eq!(losses.but_taken_over(), Losses::NONE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_masters_forget_the_scripts_and_cut_all_connections() {
    let losses = under_load(&[], plain, Counted::All, async |cluster| {
        block_in_place(|| cluster.ask_masters(&["SCRIPT", "FLUSH"]));
        sleep(QUIET).await;
        block_in_place(|| {
            for kind in ["normal", "pubsub"] {
                cluster.ask_masters(&["CLIENT", "KILL", "TYPE", kind]);
            }
        });
    })
    .await;
    assert_eq!(losses.but_taken_over(), Losses::NONE);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_hangs_for_ten_seconds() {
    // So that no replica is promoted meanwhile.
    let patient = ["--cluster-node-timeout", "60000"];
    let losses = under_load(&patient, plain, Counted::All, async |cluster| {
        let slot = slot(cluster);
        let master = cluster.master_of(slot);
        cluster.signal(master, "STOP");
        sleep(Duration::from_secs(10)).await;
        cluster.signal(master, "CONT");
    })
    .await;
    // A lease may have ended meanwhile, of tasks that had been started and could not be ended.
    assert_eq!(losses.but_taken_over(), Losses::NONE);
}

#[tokio::test]
async fn a_change_waits_for_its_own_master_alone() {
    let _room = ROOM.acquire().await.unwrap();
    let start = || RedisCluster::start_with(&["--cluster-node-timeout", "60000"]);
    let cluster = tokio::task::spawn_blocking(start).await.unwrap();
    // How long a hanging master is waited for.
    let store = confirmed(&cluster.url(), Duration::from_secs(60));
    let scheduler = Scheduler::new(store);
    let master_of = |key: &str| cluster.master_of(cluster.slot_of(key));
    // It keeps the number of shards as well.
    let hangs = master_of("{delayline:tasks}:shards");
    let ids: Vec<_> = (0..50).map(|_| scheduler.new_id()).collect();
    let is_far = |id: &TaskId| master_of(&tag(shard_of(*id))) == hangs;
    let far = *ids.iter().find(|id| is_far(id)).unwrap();
    let near = *ids.iter().find(|id| !is_far(id)).unwrap();
    for id in [near, far] {
        let task = NewTask::new(KIND, &()).id(id).after(Duration::from_secs(3_600));
        scheduler.schedule(task).await.unwrap();
    }
    cluster.signal(hangs, "STOP");
    // What is known of the number is old by then.
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    let hanging = tokio::spawn({
        let scheduler = scheduler.clone();
        async move { scheduler.cancel(far).await }
    });
    for hours in 2..10 {
        let answer = scheduler
            .reschedule(near, Duration::from_secs(hours * 3_600))
            .await
            .unwrap();
        assert!(matches!(answer, Answer::Done(_)), "{answer:?}");
    }
    assert!(!hanging.is_finished());
    hanging.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_masters_forget_all_rows() {
    let forget = async |cluster: &mut RedisCluster| block_in_place(|| cluster.ask_masters(&["FLUSHALL"]));
    let losses = under_load(&[], plain, Counted::Later, forget).await;
    // On a busy machine a lease may have ended meanwhile.
    assert_eq!(losses.but_taken_over(), Losses::NONE);
}
