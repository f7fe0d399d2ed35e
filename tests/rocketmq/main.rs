//! Tests carrying wake-ups through a real RocketMQ broker: the contract of backends, and what is special to this one.
#![allow(clippy::unwrap_used)]
// For the bare client in here; the backend needs none: see `tests/examples/rocketmq_caller.rs`.
#![recursion_limit = "512"]

mod carrying;
#[cfg(feature = "testing")]
mod conformance;
mod deleted;
mod explained;
mod failures;
mod forwarding;
mod hostile;
mod inbox;
mod masters;
#[path = "../support/meddled.rs"]
#[allow(dead_code)] // Not everything of it is needed here.
mod meddled;
mod nameserver;
mod outage;
mod raw;
mod security;
#[path = "../support/rocketmq.rs"]
mod servers;
#[path = "../support/setting.rs"]
mod setting;
mod survey;
mod timers;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline::backend::{Arrival, Backend, Departure, Reach, RocketMqBackend, RocketMqTimers, Wake};
use delayline::rocketmq::RocketMqOptions;
use delayline::{Error, TaskId};
use tokio::time::timeout;

use self::raw::Raw;
use self::setting::setting;

/// The levels that the broker of these tests is started with.
const LEVELS: &str = "1s 2s 5s 10s";
const ONE: Duration = Duration::from_secs(1);
const TWO: Duration = Duration::from_secs(2);
/// Makes a test fail that would hang.
const SAFETY: Duration = Duration::from_secs(300);

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

    async fn connect_timers(&self) -> Arc<RocketMqTimers> {
        Arc::new(RocketMqTimers::connect(self.options()).await.unwrap())
    }

    /// Asserts that nothing was sent back to the broker.
    async fn assert_nothing_sent_back(&self) {
        // For as long as the broker would delay it: by its third level.
        tokio::time::sleep(Duration::from_secs(5 + 2)).await;
        let raw = Raw::new(&nameserver());
        assert_eq!(raw.sent_back(&self.group).await, 0);
        raw.close().await;
    }
}

async fn connect_to(nameserver: &str) -> Arc<RocketMqBackend> {
    // A test that fails shows what the backend has seen.
    let _already = tracing_subscriber::fmt()
        .with_test_writer()
        .with_env_filter("delayline=info")
        .try_init();
    Arc::new(RocketMqBackend::connect(nameserver).await.unwrap())
}

/// A port that was free a moment ago, and where no process listens.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
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

/// Connects, and retries transient errors: brokers that have just started are slow to begin with.
async fn connect(options: RocketMqOptions) -> Result<RocketMqBackend, Error> {
    timeout(SAFETY, async {
        loop {
            match RocketMqBackend::connect(options.clone()).await {
                Err(error) if error.is_transient() => tokio::time::sleep(Duration::from_millis(200)).await,
                outcome => return outcome,
            }
        }
    })
    .await
    .expect("in bounded time")
}

/// Sends all of them, also on a machine too busy to take a batch in the second that one has.
async fn send(backend: &RocketMqBackend, batch: Vec<Departure>) {
    send_by(backend, batch).await;
}

async fn send_by(backend: &dyn Backend, mut batch: Vec<Departure>) {
    let sending = async {
        while let Err(unsent) = backend.send(&batch).await {
            assert!(unsent.cause.is_transient(), "{unsent}");
            batch = unsent.failed.iter().map(|&place| batch[place].clone()).collect();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    timeout(SAFETY, sending).await.expect("all are sent");
}

/// Receives and acknowledges until each of `count` wake-ups came at least once.
async fn receive_all(backend: &RocketMqBackend, count: usize) -> BTreeSet<Wake> {
    receive_all_by(backend, count).await
}

async fn receive_all_by(backend: &dyn Backend, count: usize) -> BTreeSet<Wake> {
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

/// Receives and acknowledges until each of these came, among others that come once more: what a busy broker answered too
/// late was sent again, and one that was killed delivers again.
async fn receive_each(backend: &dyn Backend, numbers: std::ops::Range<u64>) {
    let mut missing: BTreeSet<_> = numbers.map(wake).collect();
    while !missing.is_empty() {
        for wake in receive_all_by(backend, 1).await {
            missing.remove(&wake);
        }
    }
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
