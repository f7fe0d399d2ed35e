//! Tests topics and consumer groups that are deleted while wake-ups travel.

use super::servers::RocketMqServers;
use super::*;

/// A broker that creates nothing by itself.
fn strict() -> RocketMqServers {
    RocketMqServers::start(&[
        // Before 5.0 brokers cannot be asked for one group.
        "--version",
        "5.3.3",
        "--nameserver",
        "5.3.3",
        "--levels",
        "1s 2s",
        "--set",
        "timerWheelEnable=true",
        "--set",
        "autoCreateTopicEnable=false",
        "--set",
        "autoCreateSubscriptionGroup=false",
    ])
}

/// Sends one wake-up after the other, and receives, until one comes that was sent after this began.
async fn until_wake_ups_come(backend: &Arc<RocketMqBackend>, from: u64) {
    let coming = async {
        for number in from.. {
            // A wake-up that is not taken has gone another way, or is left to the sweep.
            let _ = backend.send(&departures(number..number + 1, ONE)).await;
            if let Ok(arrivals) = timeout(ONE, backend.receive(100)).await {
                let arrivals = arrivals.unwrap();
                let is_new = arrivals.iter().any(|arrival| arrival.wake.version > from);
                backend.acknowledge(arrivals).await;
                if is_new {
                    return;
                }
            }
        }
    };
    timeout(2 * SAFETY, coming).await.expect("wake-ups come again");
}

/// Waits until it is found that the missing thing is back: a send may have failed a moment ago.
async fn until_healthy(backend: &RocketMqBackend) {
    let healthy = async {
        while backend.health().await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    timeout(SAFETY, healthy).await.expect("it is healthy again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_is_deleted_is_made_again_and_wake_ups_come_again() {
    let servers = strict();
    let backend = connect_to(&servers.nameserver).await;
    let raw = Raw::new(&servers.nameserver);
    send(&backend, departures(0..20, ONE)).await;
    receive_all(&backend, 20).await;
    // On their way.
    send(&backend, departures(20..40, TWO)).await;
    raw.delete_topic("delayline_wakes").await;
    until_wake_ups_come(&backend, 1_000).await;
    assert_eq!(raw.queues("delayline_wakes").await, 8);
    until_healthy(&backend).await;
    raw.close().await;
    backend.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_consumer_group_that_is_deleted_is_made_again_and_wake_ups_come_again() {
    let servers = strict();
    let backend = connect_to(&servers.nameserver).await;
    let raw = Raw::new(&servers.nameserver);
    send(&backend, departures(0..20, ONE)).await;
    receive_all(&backend, 20).await;
    send(&backend, departures(20..40, TWO)).await;
    // On a busy machine it is there again before anything else is asked.
    raw.delete_group("delayline_workers").await;
    until_wake_ups_come(&backend, 1_000).await;
    assert!(raw.has_group("delayline_workers").await);
    raw.close().await;
    backend.close().await.unwrap();
}
