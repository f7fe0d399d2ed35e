//! Measures what callers notice when the only broker is killed with -9 under load and comes back: with this library,
//! and with RocketMQ's client alone.
//!
//! ```sh
//! cargo bench --bench outage --features rocketmq,redis -- [--rate 200] [--down 10]
//! ```
//!
//! It runs a nameserver and a broker of its own for each side, and a Redis for the library. Callers ask `rate` times a
//! second, for delays spread over the levels of a short table; after 5 s the broker is killed, after `down` seconds it
//! is started again, and the calls end 20 s after it is in use again. The library keeps its rows in SQLite. The bare
//! client sends each message at one level, and is late by what it is later than that.
#![allow(clippy::unwrap_used, reason = "a program that measures may panic")]
// For the client's own types.
#![recursion_limit = "512"]

mod bare;

#[path = "../../tests/outage/callers.rs"]
mod callers;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../../tests/support/database.rs"]
mod database;
#[path = "../../tests/outage/node.rs"]
mod node;
#[path = "../../tests/support/redis/mod.rs"]
mod redis_server;
#[path = "../../tests/support/rocketmq.rs"]
mod servers;
#[path = "../../tests/support/service.rs"]
mod service;

use std::time::{Duration, Instant};

use tokio::task::spawn_blocking;
use tokio::time::sleep;

use crate::bare::Bare;
use crate::callers::Callers;
use crate::node::{Place, Shop};
use crate::redis_server::RedisServer;
use crate::servers::{BROKER, RocketMqServers};

const LEVELS: &str = "1s 2s 5s 10s";
const BEFORE: Duration = Duration::from_secs(5);
const AFTER: Duration = Duration::from_secs(20);

#[tokio::main]
async fn main() {
    let (mut rate, mut down) = (200, Duration::from_secs(10));
    let mut arguments = std::env::args().skip(1).filter(|argument| argument != "--bench");
    while let Some(option) = arguments.next() {
        let value = arguments.next().and_then(|value| value.parse().ok());
        match (option.as_str(), value) {
            ("--rate", Some(value @ 1..)) => rate = value,
            ("--down", Some(value)) => down = Duration::from_secs(value.into()),
            _ => {
                eprintln!("outage: allowed are --rate and --down, each with a number");
                std::process::exit(2);
            }
        }
    }
    println!("the only broker killed with -9 for {down:?}, under {rate} calls/s");
    ours(rate, down).await;
    // Its futures are large.
    Box::pin(bare(rate, down)).await;
}

async fn ours(rate: u32, down: Duration) {
    let servers = start().await;
    let redis = RedisServer::start();
    let shop = Shop::open(Place::new(&servers.nameserver, redis.url()))
        .await
        .without_effects();
    let node = shop.worker("worker").await;
    let callers = Callers::start(&shop, &node, rate, 1_200..12_000);
    sleep(BEFORE).await;
    let (servers, outage) = kill_for(servers, down).await;
    let sent = node.scheduler.stats().sent_by_carrier;
    while node.scheduler.stats().sent_by_carrier == sent {
        sleep(Duration::from_millis(20)).await;
    }
    let used = outage.started.elapsed();
    sleep(AFTER).await;
    let failed = callers.stop().await.len();
    shop.until_all_ran().await;
    node.stop().await;
    stop(servers).await;
    println!("\ndelayline");
    println!("  back after {:.1?}, used again after {used:.1?}", outage.back);
    println!(
        "  failed verbs {failed}, lost {}, run twice {}",
        shop.lost(),
        shop.repeated()
    );
    println!("  {}", shop.lateness());
}

async fn bare(rate: u32, down: Duration) {
    let servers = start().await;
    let bare = Bare::start(&servers.nameserver, LEVELS).await;
    let sending = bare.send_at(rate);
    sleep(BEFORE).await;
    let (servers, outage) = kill_for(servers, down).await;
    let sent = bare.sent();
    while bare.sent() == sent {
        sleep(Duration::from_millis(20)).await;
    }
    let used = outage.started.elapsed();
    sleep(AFTER).await;
    sending.abort();
    let report = bare.finish().await;
    stop(servers).await;
    println!("\nthe bare client");
    println!("  back after {:.1?}, used again after {used:.1?}", outage.back);
    println!("{report}");
}

struct Outage {
    started: Instant,
    /// After which time the nameserver named the broker again.
    back: Duration,
}

async fn start() -> RocketMqServers {
    spawn_blocking(|| RocketMqServers::start(&["--levels", LEVELS]))
        .await
        .unwrap()
}

async fn kill_for(servers: RocketMqServers, down: Duration) -> (RocketMqServers, Outage) {
    let killing = move || {
        let started = Instant::now();
        servers.kill(BROKER);
        std::thread::sleep(down);
        servers.start_again();
        let back = started.elapsed();
        (servers, Outage { started, back })
    };
    spawn_blocking(killing).await.unwrap()
}

async fn stop(servers: RocketMqServers) {
    spawn_blocking(|| drop(servers)).await.unwrap();
}
