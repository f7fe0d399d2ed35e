//! Servers that are gone for a while.

use std::time::Instant;

use tokio::time::sleep;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nameserver_that_is_gone_is_not_missed() {
    let own = Own::start(1).await;
    let shop = Shop::open(own.place()).await;
    let node = shop.worker("a").await;
    let callers = Callers::start(&shop, &node, 10, 1_200..6_000);
    until_levels_carry(&shop, &node, "at first").await;
    let before = node.scheduler.stats();
    own.kill("namesrv");
    sleep(outage()).await;
    // Wake-ups travel as before, though a nameserver is asked now and then.
    until_levels_carry(&shop, &node, "without a nameserver").await;
    callers.assert_none_failed().await;
    shop.until_all_ran().await;
    let after = node.scheduler.stats();
    node.stop().await;
    shop.assert_each_ran_once().await;
    println!(
        "sent through levels {}, otherwise because they were unwell {}",
        after.sent_by_carrier - before.sent_by_carrier,
        after.rerouted - before.rerouted
    );
    println!("{}", shop.lateness());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_all_of_rocketmq_gone_everything_runs_from_redis_or_by_the_sweep() {
    let own = Own::start(1).await;
    let shop = Shop::open(own.place()).await;
    let node = shop.worker("a").await;
    let callers = Callers::start(&shop, &node, 10, 1_200..8_000);
    until_levels_carry(&shop, &node, "at first").await;
    own.kill(BROKER);
    own.kill("namesrv");
    let gone = Instant::now();
    sleep(outage()).await;
    // Tasks that were under way in the broker when it died, and tasks that were scheduled since: all run while it is
    // gone.
    callers.assert_none_failed().await;
    shop.until_all_ran().await;
    println!("gone for {:.1?}: {}", gone.elapsed(), shop.lateness());
    shop.assert_each_ran_once().await;

    // When it is back it is used again, and its old messages are dropped.
    own.start_again();
    let callers = Callers::start(&shop, &node, 10, 1_200..3_000);
    until_levels_carry(&shop, &node, "when all is back").await;
    callers.assert_none_failed().await;
    shop.until_all_ran().await;
    node.stop().await;
    shop.assert_each_ran_once().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_starts_while_all_of_rocketmq_is_away_and_uses_it_when_it_comes() {
    let own = Own::start(1).await;
    own.kill(BROKER);
    own.kill("namesrv");
    let shop = Shop::open(own.place()).await;
    let node = shop.worker("a").await;
    node.schedule(&shop, 20, 1_200..3_000).await;
    shop.until_all_ran().await;
    assert_eq!(node.scheduler.stats().sent_by_carrier, 0);
    let lateness = shop.lateness();

    own.start_again();
    let callers = Callers::start(&shop, &node, 10, 1_200..3_000);
    until_levels_carry(&shop, &node, "when it has come").await;
    callers.assert_none_failed().await;
    shop.until_all_ran().await;
    node.stop().await;
    shop.assert_each_ran_once().await;
    println!("without RocketMQ: {lateness}");
}
