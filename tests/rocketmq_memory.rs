//! Tests how much memory hostile messages on the topic of wake-ups take: in a process of its own, whose memory is
//! measured.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]
// For the bare client.
#![recursion_limit = "512"]

#[path = "rocketmq/raw.rs"]
#[allow(dead_code)] // Not everything of it is needed here.
mod raw;

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use delayline::TaskId;
use delayline::backend::{Backend, Departure, RocketMqBackend, Wake};
use delayline::rocketmq::RocketMqOptions;

const SAFETY: Duration = Duration::from_secs(300);
const MIB: u64 = 1_024 * 1_024;
/// How many foreign messages of 1 MiB are sent.
const FOREIGN: u64 = 200;

fn unique() -> String {
    format!("{:016x}", RandomState::new().hash_one(0))
}

/// The memory of this process.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = pages.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_messages_are_not_piled_up_while_all_listeners_are_held() {
    let nameserver = std::env::var("DELAYLINE_ROCKETMQ")
        .expect("DELAYLINE_ROCKETMQ: run scripts/test, or start a nameserver by scripts/rocketmq");
    let topic = format!("memory-{}", unique());
    let options = RocketMqOptions::new(&nameserver).topic(&topic).group(&topic);
    let backend = RocketMqBackend::connect(options).await.unwrap();
    let raw = raw::Raw::new(&nameserver);

    // More wake-ups than listeners take, none of which is acknowledged.
    let departures: Vec<_> = (0..1_500_u128)
        .map(|number| Departure {
            wake: Wake {
                id: TaskId::from_bytes(number.to_be_bytes()),
                kind: "k".into(),
                version: 1,
            },
            delay: Duration::from_secs(1),
        })
        .collect();
    let mut batch = departures;
    while let Err(unsent) = backend.send(&batch).await {
        batch = unsent.failed.iter().map(|&place| batch[place].clone()).collect();
    }
    let mut held = 0;
    while held < 1_000 {
        let arrivals = tokio::time::timeout(SAFETY, backend.receive(1_000));
        held += arrivals.await.expect("they arrive").unwrap().len();
    }

    let before = resident();
    let (most, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let weighing = std::thread::spawn({
        let (most, ended) = (most.clone(), ended.clone());
        move || {
            while !ended.load(Ordering::Relaxed) {
                most.fetch_max(resident(), Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    raw.send(&topic, (0..FOREIGN).map(|_| vec![7; MIB as usize]))
        .await;
    // In the end each is dropped, and counted, for listeners are held for 10 s only.
    tokio::time::timeout(SAFETY, async {
        while backend.foreign() < FOREIGN {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap_or_else(|_| panic!("{} of {FOREIGN} were dropped", backend.foreign()));
    ended.store(true, Ordering::Relaxed);
    weighing.join().unwrap();
    let grown = most.load(Ordering::Relaxed).saturating_sub(before) / MIB;
    println!("{grown} MiB more than before, of {FOREIGN} MiB that were sent");
    // For each of 8 queues: what it may read ahead, what it had read when it was less, and what is in flight.
    assert!(grown < 80, "{grown} MiB");
    backend.close().await.unwrap();
    raw.close().await;
}
