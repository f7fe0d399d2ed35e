//! Tests nameservers before 5.0, whose answers lack a field that the client needs.

use super::servers::RocketMqServers;
use super::*;

/// Asserts that servers of one version are found, asked and used, through both levels of these tests.
async fn assert_served_by(version: &str) {
    let servers =
        RocketMqServers::start(&["--version", version, "--nameserver", version, "--levels", LEVELS]);
    // No server listens at the first address: a nameserver that is away keeps no process from starting.
    let nameservers = format!("127.0.0.1:{};{}", free_port(), servers.nameserver);
    let backend = connect(nameservers.into()).await.unwrap();
    assert_eq!(backend.delays().reach, Reach::Levels(LEVELS.parse().unwrap()));
    let mut batch = departures(0..50, ONE);
    batch.extend(departures(50..100, TWO));
    send(&backend, batch).await;
    assert_eq!(receive_all(&backend, 100).await, (0..100).map(wake).collect());
    backend.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_4_9_serves_as_a_later_one_does() {
    assert_served_by("4.9.7").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_4_8_serves_as_a_later_one_does() {
    assert_served_by("4.8.0").await;
}
