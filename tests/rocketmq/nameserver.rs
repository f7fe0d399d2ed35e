//! Tests nameservers before 5.0, whose answers lack a field that the client needs.

use super::servers::{BROKER, RocketMqServers};
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

/// Asserts that a topic whose broker of this version is known, and itself is not, stays as its operator made it.
async fn assert_left_as_it_is(version: &str) {
    // The nameserver is told again after a minute.
    let settings = ["--set", "registerNameServerPeriod=60000"];
    let servers =
        RocketMqServers::start(&[&["--version", version, "--levels", LEVELS], &settings[..]].concat());
    let raw = Raw::new(&servers.nameserver);
    raw.make_topic("mine", 3).await;
    while raw.queues("mine").await == 0 {}
    raw.forget_topic("mine").await;
    let options = RocketMqOptions::new(&servers.nameserver).topic("mine");
    match RocketMqBackend::connect(options).await {
        Err(error) => assert!(error.is_transient(), "{error}"),
        Ok(backend) => backend.close().await.unwrap(),
    }
    raw.close().await;
    let kept = servers.kept(BROKER);
    let topics: serde_json::Value = serde_json::Deserializer::from_str(&kept)
        .into_iter()
        .next()
        .unwrap()
        .unwrap();
    assert_eq!(
        topics["topicConfigTable"]["mine"]["writeQueueNums"], 3,
        "{topics}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_one_has_forgotten_stays_as_its_operator_made_it() {
    assert_left_as_it_is("5.3.3").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_of_4_8_that_one_has_forgotten_stays_as_its_operator_made_it() {
    assert_left_as_it_is("4.8.0").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_4_9_serves_as_a_later_one_does() {
    assert_served_by("4.9.7").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_of_4_8_serves_as_a_later_one_does() {
    assert_served_by("4.8.0").await;
}
