//! The example `forward_to_topic`, as a user runs it.

use std::collections::BTreeSet;

use crate::program;

#[tokio::test]
async fn a_consumer_that_knows_nothing_of_delayline_gets_each_order() {
    let nameserver = std::env::var("DELAYLINE_ROCKETMQ").unwrap_or_else(|_| {
        panic!(
            "DELAYLINE_ROCKETMQ must be the HOST:PORT of a nameserver: run scripts/test, \
             or start one by: scripts/rocketmq start DIR"
        )
    });
    let topic = format!("orders-{:016x}", fastrand::u64(..));
    let arguments = ["--rocketmq", &nameserver, "--topic", &topic, "--orders", "5"];
    let output = program::run("forward_to_topic", &arguments).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}\n{complained}", output.status);
    let consumed: BTreeSet<_> = said
        .lines()
        .filter_map(|line| line.strip_prefix("consumed   ")?.split(' ').next())
        .collect();
    let orders = ["order-1", "order-2", "order-3", "order-4", "order-5"];
    assert_eq!(consumed, orders.into(), "{said}");
}
