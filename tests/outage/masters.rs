//! Several masters, of which one is lost.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_masters_may_be_lost_for_good() {
    let own = Own::start(2).await;
    let shop = Shop::open(own.place()).await;
    let node = shop.worker("a").await;
    let callers = Callers::start(&shop, &node, 10, 1_200..8_000);
    until_levels_carry(&shop, &node, "at first").await;
    own.kill("broker-b");
    // The other one continues by itself.
    until_levels_carry(&shop, &node, "with one master").await;
    callers.assert_none_failed().await;
    shop.until_all_ran().await;
    node.stop().await;
    shop.assert_each_ran_once().await;
    println!("{}", shop.lateness());
}
