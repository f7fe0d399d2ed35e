//! Workers of one group that come and go, on a healthy broker.

use super::*;

/// The broker that harmless tests share, and a Redis of the test's own.
fn shared() -> (RedisServer, Place) {
    let nameserver = std::env::var("DELAYLINE_ROCKETMQ").unwrap_or_else(|_| {
        panic!(
            "DELAYLINE_ROCKETMQ must be the HOST:PORT of a nameserver: run scripts/test, \
             or start one by: scripts/rocketmq start DIR --levels \"{LEVELS}\""
        )
    });
    let redis = RedisServer::start();
    let place = Place::new(&nameserver, redis.url());
    (redis, place)
}

/// Waits until a worker runs tasks whose wake-ups it received through levels: it has queues.
async fn until_it_has_a_share(shop: &Shop, name: &str) {
    let share = || {
        let runs = shop.runs().into_iter();
        runs.filter(|run| run.node == name && run.woken_by == WokenBy::Carrier)
            .count()
    };
    let before = share();
    until("a worker has a share of the wake-ups", || share() > before + 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_of_one_group_share_the_wake_ups_and_come_and_go() {
    let (_redis, place) = shared();
    let shop = Shop::open(place).await;
    let sender = shop.sender().await;
    let a = shop.worker("a").await;
    // Nearly levels: so that the last hop of most is one.
    let callers = Callers::start(&shop, &sender, 20, 1_900..2_100);
    until_it_has_a_share(&shop, "a").await;
    let b = shop.worker("b").await;
    until_it_has_a_share(&shop, "b").await;
    until_it_has_a_share(&shop, "a").await;
    a.stop().await;
    until_it_has_a_share(&shop, "b").await;
    let c = shop.worker("c").await;
    until_it_has_a_share(&shop, "c").await;
    b.stop().await;
    until_it_has_a_share(&shop, "c").await;
    callers.assert_none_failed().await;
    shop.until_all_ran().await;
    c.stop().await;
    sender.stop().await;
    shop.assert_each_ran_once().await;
    println!("{}", shop.lateness());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_clean_stop_nothing_is_in_hand_and_nothing_comes_again() {
    const MANY: usize = 300;
    const FEW: usize = 10;
    let (_redis, place) = shared();
    let shop = Shop::open(place).await;
    let a = shop.worker("a").await;
    a.schedule(&shop, MANY, 1_200..2_000).await;
    shop.until_all_ran().await;
    a.stop().await;

    let b = shop.worker("b").await;
    b.schedule(&shop, FEW, 1_200..2_000).await;
    shop.until_all_ran().await;
    // A wake-up for each through levels, perhaps a hop more, and one through Redis.
    let received = b.scheduler.stats().received;
    assert!(received < MANY as u64 / 2, "{received} wake-ups for {FEW} tasks");

    // Stopped in the middle of it, a worker leaves no task behind that only the end of its lease would free.
    b.schedule(&shop, MANY, 1_200..3_000).await;
    let ran = shop.runs().len();
    until("some ran", || shop.runs().len() > ran + MANY / 4).await;
    b.stop().await;
    let c = shop.sender().await;
    assert_eq!(c.claimed().await, []);
    c.stop().await;
    let c = shop.worker("c").await;
    shop.until_all_ran().await;
    c.stop().await;
    shop.assert_each_ran_once().await;
}
