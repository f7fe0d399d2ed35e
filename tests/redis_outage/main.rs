//! The whole library on Redis servers that die, move, forget, hang and cut connections under load, and with workers that
//! are killed: no verb fails, nothing is lost, nothing is early, and nothing runs twice.
//!
//! `DELAYLINE_OUTAGE_RATE` sets how many tasks are scheduled each second (default 100), `DELAYLINE_OUTAGE_SECONDS` for how
//! long workers are killed, one each 5 s (default 15).
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod callers;
mod child;
mod cluster;
mod kills;
mod pace;
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
#[path = "../support/setting.rs"]
mod setting;

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use delayline::Timestamp;
use tokio::sync::Semaphore;

use self::setting::setting;

/// Makes a test fail that would hang.
const SAFETY: Duration = Duration::from_secs(300);

/// As many tests at a time as a small machine can run.
static ROOM: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(if rate() > 1_000 { 1 } else { 3 }));

/// How many tasks are scheduled each second.
fn rate() -> usize {
    setting("DELAYLINE_OUTAGE_RATE").unwrap_or(100)
}

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
