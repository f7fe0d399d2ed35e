//! The whole library on RocketMQ servers that restart, die and are gone for a while: no verb fails, nothing is lost,
//! and nothing runs twice.
//!
//! `DELAYLINE_OUTAGE_SECONDS` sets for how long servers are away that are not started again at once (default 15).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod callers;
mod gone;
mod killed;
mod masters;
mod node;
#[path = "../support/redis/mod.rs"]
mod redis_server;
mod restarts;
#[path = "../support/rocketmq.rs"]
mod servers;
#[path = "../support/service.rs"]
mod service;
#[path = "../support/setting.rs"]
mod setting;
mod workers;

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../support/database.rs"]
mod database;

use std::time::Duration;

use delayline::backend::WokenBy;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::block_in_place;
use tracing_subscriber::EnvFilter;

use self::callers::Callers;
use self::node::{Node, Place, SAFETY, Shop};
use self::redis_server::RedisServer;
use self::servers::{BROKER, RocketMqServers};
use self::setting::setting;

const LEVELS: &str = "1s 2s 5s 10s";

/// How long servers are away that are not restarted at once: longer than a client caches what it knows of them.
fn outage() -> Duration {
    Duration::from_secs(setting("DELAYLINE_OUTAGE_SECONDS").unwrap_or(15))
}

/// Servers of a test's own, as few at a time as a small machine can run.
struct Own {
    servers: RocketMqServers,
    redis: RedisServer,
    _room: SemaphorePermit<'static>,
}

impl Own {
    async fn start(masters: u32) -> Self {
        // With RUST_LOG=delayline=info a test tells what it went through.
        let _already = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::from_default_env())
            .try_init();
        static BROKERS: Semaphore = Semaphore::const_new(2);
        let room = BROKERS.acquire_many(masters).await.unwrap();
        let servers = block_in_place(|| {
            RocketMqServers::start(&["--levels", LEVELS, "--masters", &masters.to_string()])
        });
        Self {
            servers,
            redis: RedisServer::start(),
            _room: room,
        }
    }

    fn place(&self) -> Place {
        Place::new(&self.servers.nameserver, self.redis.url())
    }

    fn stop(&self, part: &str) {
        block_in_place(|| self.servers.stop(part));
    }

    fn kill(&self, part: &str) {
        block_in_place(|| self.servers.kill(part));
    }

    fn start_again(&self) {
        block_in_place(|| self.servers.start_again());
    }
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(SAFETY, waiting)
        .await
        .unwrap_or_else(|_| panic!("waited too long: {what}"));
}

/// Waits until wake-ups travel by levels: sent through `sender`, and received by a worker.
async fn until_levels_carry(shop: &Shop, sender: &Node, when: &str) {
    let sent = sender.scheduler.stats().sent_by_carrier;
    until(&format!("{when}, the carrier takes wake-ups"), || {
        sender.scheduler.stats().sent_by_carrier > sent + 10
    })
    .await;
    let woken = shop.woken_by_levels();
    until(&format!("{when}, wake-ups arrive through levels"), || {
        shop.woken_by_levels() > woken + 3
    })
    .await;
}
