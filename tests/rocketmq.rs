//! The RocketMQ backend against a real broker.
#![cfg(feature = "rocketmq")]
// For the bare client in here; the backend needs none: see `tests/rocketmq_caller.rs`.
#![recursion_limit = "512"]

#[path = "rocketmq/raw.rs"]
mod raw;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline::backend::{Arrival, Backend, Departure, Reach, RocketMqBackend, RocketMqOptions};
use delayline::{Error, TaskId, Wake};
use tokio::time::timeout;

use self::raw::Raw;

/// The levels that the broker of these tests is started with.
const LEVELS: &str = "1s 2s 5s 10s";
const ONE: Duration = Duration::from_secs(1);
const TWO: Duration = Duration::from_secs(2);
/// Only so that a test which would hang fails.
const SAFETY: Duration = Duration::from_secs(60);

fn nameserver() -> String {
    std::env::var("DELAYLINE_ROCKETMQ").unwrap_or_else(|_| {
        panic!(
            "DELAYLINE_ROCKETMQ must be the HOST:PORT of a nameserver: run scripts/test, \
             or start one by: scripts/rocketmq start DIR --levels \"{LEVELS}\""
        )
    })
}

/// A topic and a group of its own for each test, so that they may run at once and again.
struct Place {
    topic: String,
    group: String,
}

impl Place {
    fn new() -> Self {
        let unique = unique();
        Self {
            topic: format!("wakes-{unique}"),
            group: format!("workers-{unique}"),
        }
    }

    fn options(&self) -> RocketMqOptions {
        RocketMqOptions::new(nameserver())
            .topic(&self.topic)
            .group(&self.group)
    }

    async fn connect(&self) -> Arc<RocketMqBackend> {
        Arc::new(RocketMqBackend::connect(self.options()).await.unwrap())
    }

    /// Nothing was sent back to the broker.
    async fn assert_nothing_sent_back(&self) {
        let raw = Raw::new(&nameserver());
        assert_eq!(raw.sent_back(&self.group).await, 0);
        raw.close().await;
    }
}

fn unique() -> String {
    format!("{:016x}", RandomState::new().hash_one(0))
}

fn wake(number: u64) -> Wake {
    let mut id = [7; 16];
    id[8..].copy_from_slice(&number.to_be_bytes());
    Wake {
        id: TaskId::from_bytes(id),
        kind: "order.cancel".into(),
        version: number + 1,
    }
}

fn departures(numbers: std::ops::Range<u64>, delay: Duration) -> Vec<Departure> {
    numbers
        .map(|number| Departure {
            wake: wake(number),
            delay,
        })
        .collect()
}

/// Receives and acknowledges until each of `count` wake-ups came at least once.
async fn receive_all(backend: &RocketMqBackend, count: usize) -> BTreeSet<Wake> {
    let mut seen = BTreeSet::new();
    while seen.len() < count {
        let arrivals = timeout(SAFETY, backend.receive(100))
            .await
            .expect("all arrive")
            .unwrap();
        assert!((1..=100).contains(&arrivals.len()));
        seen.extend(arrivals.iter().map(|arrival| arrival.wake.clone()));
        backend.acknowledge(arrivals).await;
    }
    seen
}

/// What arrives within `within`.
async fn arriving(backend: &RocketMqBackend, within: Duration) -> Vec<Arrival> {
    let mut arrived = Vec::new();
    let end = tokio::time::Instant::now() + within;
    while let Ok(arrivals) = tokio::time::timeout_at(end, backend.receive(1_000)).await {
        arrived.extend(arrivals.unwrap());
    }
    arrived
}

#[tokio::test]
async fn the_level_table_is_the_brokers() {
    let backend = Place::new().connect().await;
    assert_eq!(backend.delays().reach, Reach::Levels(LEVELS.parse().unwrap()));
    backend.health().await.unwrap();
    backend.close().await.unwrap();
}

#[tokio::test]
async fn a_configured_table_is_used_instead() {
    let backend = RocketMqBackend::connect(Place::new().options().levels("3s 4s".parse().unwrap()))
        .await
        .unwrap();
    assert_eq!(backend.delays().reach, Reach::Levels("3s 4s".parse().unwrap()));
    backend.close().await.unwrap();
}

#[tokio::test]
async fn a_batch_arrives_through_two_levels() {
    let backend = Place::new().connect().await;
    let mut batch = departures(0..250, ONE);
    batch.extend(departures(250..500, TWO));
    let sent = Instant::now();
    backend.send(&batch).await.unwrap();
    let receiver = backend.clone();
    let seen = tokio::spawn(async move { receive_all(&receiver, 500).await })
        .await
        .unwrap();
    assert_eq!(seen, (0..500).map(wake).collect());
    assert!(sent.elapsed() >= TWO, "a broker holds a message for its level");
    assert_eq!(backend.foreign(), 0);
    backend.close().await.unwrap();
}

#[tokio::test]
async fn two_backends_of_one_group_share_without_loss() {
    let place = Place::new();
    let (a, b) = (place.connect().await, place.connect().await);
    let share = |backend: Arc<RocketMqBackend>, all: Arc<tokio::sync::Mutex<BTreeSet<Wake>>>| {
        tokio::spawn(async move {
            let mut count = 0_usize;
            while let Ok(arrivals) = backend.receive(50).await {
                count += arrivals.len();
                all.lock()
                    .await
                    .extend(arrivals.iter().map(|arrival| arrival.wake.clone()));
                backend.acknowledge(arrivals).await;
            }
            count
        })
    };
    let all = Arc::new(tokio::sync::Mutex::new(BTreeSet::new()));
    let (at_a, at_b) = (share(a.clone(), all.clone()), share(b.clone(), all.clone()));
    // Queues move to the second one while messages are on their way.
    let mut sent = 0;
    timeout(SAFETY, async {
        while sent < 2_000 || all.lock().await.len() < sent as usize {
            if sent < 2_000 {
                a.send(&departures(sent..sent + 100, ONE)).await.unwrap();
                sent += 100;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    })
    .await
    .expect("all arrive");
    a.close().await.unwrap();
    b.close().await.unwrap();
    let (at_a, at_b) = (at_a.await.unwrap(), at_b.await.unwrap());
    assert!(at_a > 0 && at_b > 0, "both had some: {at_a} and {at_b}");
    assert_eq!(*all.lock().await, (0..2_000).map(wake).collect());
}

#[tokio::test]
async fn foreign_messages_are_dropped_counted_and_not_redelivered() {
    let place = Place::new();
    let backend = place.connect().await;
    let garbled = wake(1).encode()[1..].to_vec();
    let mut wrong_kind = wake(1).encode();
    wrong_kind.push(b'\n');
    let raw = Raw::new(&nameserver());
    raw.send(
        &place.topic,
        vec![
            b"hello".to_vec(),
            b"{}".to_vec(),
            garbled,
            wrong_kind,
            vec![0xD1; 3_000],
        ],
    )
    .await;
    raw.close().await;
    backend.send(&departures(0..3, ONE)).await.unwrap();
    assert_eq!(receive_all(&backend, 3).await.len(), 3);
    timeout(SAFETY, async {
        while backend.foreign() < 5 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("every foreign message is counted");
    backend.close().await.unwrap();
    place.assert_nothing_sent_back().await;
}

#[tokio::test]
async fn a_batch_that_is_never_acknowledged_is_answered_all_the_same() {
    let place = Place::new();
    let backend = place.connect().await;
    backend.send(&departures(0..20, ONE)).await.unwrap();
    let first = timeout(SAFETY, backend.receive(100))
        .await
        .expect("it arrives")
        .unwrap();
    // Beyond the ten seconds, and beyond the level by which a refused message would come again.
    let again = arriving(&backend, Duration::from_secs(10 + 5 + 3)).await;
    let wakes: Vec<_> = first
        .iter()
        .chain(&again)
        .map(|arrival| arrival.wake.clone())
        .collect();
    assert_eq!(wakes.len(), 20, "each came once");
    backend.close().await.unwrap();
    place.assert_nothing_sent_back().await;
    // Nor has it been left for another worker.
    let heir = place.connect().await;
    assert_eq!(arriving(&heir, Duration::from_secs(5)).await, []);
    // Too late, and no harm.
    backend.acknowledge(first).await;
    heir.close().await.unwrap();
}

#[tokio::test]
async fn what_a_closed_backend_did_not_acknowledge_comes_to_another() {
    let place = Place::new();
    let backend = place.connect().await;
    backend.send(&departures(0..100, ONE)).await.unwrap();
    let mut held = Vec::new();
    while held.len() < 100 {
        held.extend(
            timeout(SAFETY, backend.receive(100))
                .await
                .expect("it arrives")
                .unwrap(),
        );
    }
    backend.close().await.unwrap();
    let heir = place.connect().await;
    assert_eq!(receive_all(&heir, 100).await.len(), 100);
    heir.close().await.unwrap();
    place.assert_nothing_sent_back().await;
}

#[tokio::test]
async fn a_delay_that_is_no_level_fails_alone() {
    let backend = Place::new().connect().await;
    let mut batch = departures(0..3, ONE);
    batch[1].delay = Duration::from_millis(1_500);
    let error = backend.send(&batch).await.unwrap_err();
    assert_eq!(error.failed, [1]);
    assert!(
        matches!(error.cause, Error::Invalid { field: "delay", .. }),
        "{error}"
    );
    let seen = receive_all(&backend, 2).await;
    assert_eq!(seen, [wake(0), wake(2)].into());
    backend.close().await.unwrap();
}

#[tokio::test]
async fn closing_ends_a_receiver_and_everything_after() {
    let backend = Place::new().connect().await;
    let receiver = tokio::spawn({
        let backend = backend.clone();
        async move { backend.receive(10).await }
    });
    tokio::time::sleep(Duration::from_millis(200)).await;
    timeout(SAFETY, backend.close())
        .await
        .expect("it closes")
        .unwrap();
    let ended = timeout(SAFETY, receiver)
        .await
        .expect("it ends")
        .unwrap()
        .unwrap_err();
    assert!(ended.to_string().contains("closed"), "{ended}");
    timeout(SAFETY, backend.close())
        .await
        .expect("it is closed already")
        .unwrap();
    assert!(
        timeout(SAFETY, backend.receive(10))
            .await
            .expect("it ends")
            .is_err()
    );
    assert!(timeout(SAFETY, backend.health()).await.expect("it ends").is_err());
    let error = timeout(SAFETY, backend.send(&departures(0..2, ONE)))
        .await
        .expect("it ends")
        .unwrap_err();
    assert_eq!(error.failed, [0, 1]);
    assert!(!error.cause.is_transient(), "{error}");
}

#[tokio::test]
async fn dropping_without_close_is_harmless() {
    let backend = Place::new().connect().await;
    backend.send(&departures(0..40, ONE)).await.unwrap();
    let arrivals = timeout(SAFETY, backend.receive(10))
        .await
        .expect("it arrives")
        .unwrap();
    assert!(!arrivals.is_empty());
    drop(backend);
}

#[tokio::test]
async fn abandoned_calls_lose_nothing() {
    let backend = Place::new().connect().await;
    for number in 0..20 {
        let batch = departures(number * 50..(number + 1) * 50, ONE);
        let _ = timeout(Duration::from_millis(number), backend.send(&batch)).await;
    }
    // Nothing is known of those; these are taken.
    backend.send(&departures(5_000..5_100, ONE)).await.unwrap();
    let mut wanted: BTreeSet<_> = (5_000..5_100).map(wake).collect();
    timeout(SAFETY, async {
        while !wanted.is_empty() {
            if let Ok(arrivals) = timeout(Duration::from_millis(5), backend.receive(7)).await {
                let arrivals = arrivals.unwrap();
                for arrival in &arrivals {
                    wanted.remove(&arrival.wake);
                }
                backend.acknowledge(arrivals).await;
            }
        }
    })
    .await
    .expect("all arrive, however often a receive is abandoned");
    backend.close().await.unwrap();
}

#[tokio::test]
async fn an_unreachable_nameserver_is_a_transient_error() {
    // The port was free a moment ago, and nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let connecting = RocketMqBackend::connect(format!("127.0.0.1:{port}"));
    let error = timeout(SAFETY, connecting)
        .await
        .expect("in bounded time")
        .unwrap_err();
    assert!(error.is_transient(), "{error}");
    println!("{error}");
}

#[tokio::test]
async fn an_address_that_is_none_is_refused() {
    let error = RocketMqBackend::connect("localhost").await.unwrap_err();
    assert!(
        matches!(
            error,
            Error::Invalid {
                field: "nameservers",
                ..
            }
        ),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_broker_fails_sends_in_bounded_time_and_is_used_again_when_it_is_back() {
    let broker = OwnBroker::start();
    let backend = Arc::new(
        RocketMqBackend::connect(broker.nameserver.as_str())
            .await
            .unwrap(),
    );
    backend.send(&departures(0..10, TWO)).await.unwrap();
    let receiver = tokio::spawn({
        let backend = backend.clone();
        async move { receive_all(&backend, 20).await }
    });
    broker.kill();
    let error = timeout(SAFETY, backend.send(&departures(10..20, TWO)))
        .await
        .expect("in bounded time")
        .unwrap_err();
    assert_eq!(error.failed, Vec::from_iter(0..10));
    assert!(error.cause.is_transient(), "{error}");
    println!("{error}");
    assert!(
        timeout(SAFETY, backend.health())
            .await
            .expect("in bounded time")
            .is_err()
    );
    broker.start_again();
    let back = Instant::now();
    timeout(SAFETY, async {
        while backend.health().await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!("healthy after {:?}", back.elapsed());
        while let Err(error) = backend.send(&departures(10..20, TWO)).await {
            println!("{error}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        println!("sends after {:?}", back.elapsed());
        receiver.await.unwrap();
        println!("received after {:?}", back.elapsed());
    })
    .await
    .expect("it is used again");
    backend.close().await.unwrap();
}

/// A nameserver and broker that a test may kill.
struct OwnBroker {
    dir: tempfile::TempDir,
    nameserver: String,
}

impl OwnBroker {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let nameserver = start(dir.path());
        Self { dir, nameserver }
    }

    fn kill(&self) {
        let id = std::fs::read_to_string(self.dir.path().join("broker.pid")).unwrap();
        assert!(
            Command::new("kill")
                .args(["-KILL", id.trim()])
                .status()
                .unwrap()
                .success()
        );
    }

    fn start_again(&self) {
        assert_eq!(start(self.dir.path()), self.nameserver);
    }
}

impl Drop for OwnBroker {
    fn drop(&mut self) {
        let _ = Command::new(script()).arg("stop").arg(self.dir.path()).status();
    }
}

fn start(dir: &Path) -> String {
    let output = Command::new(script())
        .arg("start")
        .arg(dir)
        .args(["--levels", LEVELS])
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "scripts/rocketmq could not start a broker"
    );
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .last()
        .unwrap()
        .to_owned()
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/rocketmq")
}
