//! Servers that are restarted while workers run.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_broker_and_the_nameserver_may_be_restarted_while_workers_run() {
    let own = Own::start(1).await;
    let shop = Shop::open(own.place()).await;
    let (a, b) = (shop.worker("a").await, shop.worker("b").await);
    let callers = Callers::start(&shop, &a, 10, 1_200..6_000);
    until_levels_carry(&shop, &a, "at first").await;
    for part in [BROKER, "namesrv"] {
        own.stop(part);
        own.start_again();
        until_levels_carry(&shop, &a, &format!("{part} is back")).await;
    }
    callers.assert_none_failed().await;
    shop.until_all_ran().await;
    a.stop().await;
    b.stop().await;
    shop.assert_each_ran_once().await;
    println!("{}", shop.lateness());
}
