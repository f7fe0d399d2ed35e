//! The only broker dies under load.

use std::time::Instant;

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_the_only_broker_is_dead_no_verb_fails_and_nothing_is_lost() {
    let own = Own::start(1).await;
    let shop = Shop::open(own.place()).await;
    let node = shop.worker("a").await;
    let callers = Callers::start(&shop, &node, 25, 1_200..12_000);
    until_levels_carry(&shop, &node, "at first").await;
    let killed = Instant::now();
    own.kill(BROKER);
    // It takes some 10 s to boot.
    own.start_again();
    let away = killed.elapsed();
    until_levels_carry(&shop, &node, "when it is back").await;
    println!("away for {away:.1?}, in use again after {:.1?}", killed.elapsed());
    callers.assert_none_failed().await;
    shop.until_all_ran().await;
    let stats = node.scheduler.stats();
    node.stop().await;
    assert!(stats.rerouted > 0, "the precise backend stood in: {stats:?}");
    shop.assert_each_ran_once().await;
    println!("{}", shop.lateness());
}
