//! Tests several masters, different ones, and their levels.

use super::servers::{BROKER, RocketMqServers};
use super::*;

const OTHER: &str = "broker-b";
const TWENTY: Duration = Duration::from_secs(20);

fn table(backend: &RocketMqBackend) -> String {
    match backend.delays().reach {
        Reach::Levels(table) => table.to_string(),
        reach => panic!("{reach:?}"),
    }
}

/// Waits until the backend offers these levels.
async fn until_offered(backend: &RocketMqBackend, levels: &str) {
    let offered = async {
        while table(backend) != levels {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    if timeout(SAFETY, offered).await.is_err() {
        panic!("{levels} expected, but offered is {}", table(backend));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_delay_goes_through_a_master_that_has_it_and_a_master_that_dies_takes_only_its_own_along() {
    let servers = RocketMqServers::start(&["--masters", "2", "--levels", "1s 2s", "--levels", "10m 1s 20s"]);
    let backend = connect_to(&servers.nameserver).await;
    assert_eq!(table(&backend), "1s 2s 20s 10m");
    // The second master's 1 s is its second level; with the first one's number it would be ten minutes.
    send(&backend, departures(0..40, ONE)).await;
    receive_each(&*backend, 0..40).await;

    servers.kill(OTHER);
    // A message that one master does not take goes to the other.
    send(&backend, departures(100..140, ONE)).await;
    until_offered(&backend, "1s 2s").await;
    backend.health().await.unwrap();
    receive_each(&*backend, 100..140).await;
    let error = backend.send(&departures(0..1, TWENTY)).await.unwrap_err();
    assert_eq!(error.failed, [0]);

    servers.start_again();
    until_offered(&backend, "1s 2s 20s 10m").await;
    send(&backend, departures(200..210, TWENTY)).await;
    // Among messages that a killed broker delivers once more.
    receive_each(&*backend, 200..210).await;
    backend.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_has_changed_with_a_restart_is_read_again() {
    let servers = RocketMqServers::start(&["--levels", "1s 2s"]);
    let backend = connect_to(&servers.nameserver).await;
    assert_eq!(table(&backend), "1s 2s");
    servers.stop(BROKER);
    servers.start_again_with(&["--levels", "3s 1s"]);
    until_offered(&backend, "3s 1s").await;
    let sent = Instant::now();
    send(&backend, departures(0..10, ONE)).await;
    assert_eq!(receive_all(&backend, 10).await.len(), 10);
    assert!(sent.elapsed() >= ONE);
    backend.close().await.unwrap();
}

/// A level is first in, first out, and a broker tries a message that it cannot deliver for ever: one that has become
/// too large, here.
#[tokio::test(flavor = "multi_thread")]
async fn a_level_that_stops_delivering_is_not_used_until_it_goes_on() {
    // Long enough to change the broker's setting before the messages that are to get stuck are due.
    let servers = RocketMqServers::start(&["--levels", "1s 2s 10s"]);
    let backend = connect_to(&servers.nameserver).await;
    let raw = Raw::new(&servers.nameserver);
    raw.send_delayed("another_service", vec![7; 3_000], 3).await;
    raw.set_everywhere("maxMessageSize", "1000").await;
    until_offered(&backend, "1s 2s").await;
    backend
        .health()
        .await
        .expect("a broker with a stuck level is not ill");
    send(&backend, departures(0..10, ONE)).await;
    assert_eq!(receive_all(&backend, 10).await.len(), 10);

    raw.set_everywhere("maxMessageSize", "4194304").await;
    until_offered(&backend, "1s 2s 10s").await;
    send(&backend, departures(10..20, Duration::from_secs(10))).await;
    receive_each(&*backend, 10..20).await;
    raw.close().await;
    backend.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn where_brokers_make_no_groups_by_themselves_the_group_is_made() {
    // Before 5.0 brokers cannot be asked for one group.
    let servers = RocketMqServers::start(&[
        "--version",
        "5.3.3",
        "--nameserver",
        "5.3.3",
        "--levels",
        "1s 2s",
        "--set",
        "autoCreateSubscriptionGroup=false",
    ]);
    let backend = connect_to(&servers.nameserver).await;
    send(&backend, departures(0..20, ONE)).await;
    assert_eq!(receive_all(&backend, 20).await.len(), 20);
    backend.close().await.unwrap();
}
