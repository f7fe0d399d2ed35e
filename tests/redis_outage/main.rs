//! The whole library on Redis servers that die, move, forget, hang and cut connections under 2,000 tasks a second, and
//! with workers that are killed: no verb fails, nothing is lost, nothing is early, and nothing runs twice.
//!
//! `DELAYLINE_OUTAGE_SECONDS` sets for how long workers are killed, one each 5 s (default 15).
#![cfg(all(feature = "redis", feature = "sqlite"))]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod callers;
mod child;
mod cluster;
mod kills;
mod process;
mod rows;
mod shop;
mod workers;

#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../support/database.rs"]
mod database;
#[path = "../support/redis/mod.rs"]
mod servers;
#[path = "../support/service.rs"]
mod service;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use delayline::Timestamp;
use tokio::sync::Semaphore;

/// Only so that a test which would hang fails.
const SAFETY: Duration = Duration::from_secs(120);

/// One at a time is as much as a small machine bears.
static ROOM: Semaphore = Semaphore::const_new(1);

/// The time by the clock of a database in a file, which is this machine's.
fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap())
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
