//! Tests more than kills: connections that freeze, are cut, slow, reset and refused, machines that are suspended,
//! servers that die, hang, fill up and withdraw rights, tables that are away and rows that other programs lock, at
//! moments from a seed; and callers, workers, handlers and claimants without a worker that go on, of kinds that an
//! operator pauses and resumes. Then nothing is lost, nothing was early, no answer was false, nothing started that was
//! paused, effects happened once, and every task has ended.
//!
//! `DELAYLINE_NEMESIS_SECONDS` sets for how long faults happen (default 120), `DELAYLINE_NEMESIS_SEED` repeats the
//! faults of a run with the seed that it has printed. Each test has servers of its own, so several may run at once, as
//! far as the machine can. With `RUST_LOG=delayline=warn` workers log what they go through.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

/// Prints a line even where the output of tests is hidden: what happened is of interest when all is well, too.
macro_rules! tell {
    ($($what:tt)*) => {
        std::io::Write::write_all(&mut std::io::stderr(), format!("{}\n", format_args!($($what)*)).as_bytes()).unwrap()
    };
}

mod audit;
mod callers;
mod claimant;
mod clocks;
mod ends;
mod fault;
mod home;
mod ledger;
mod network;
mod operator;
mod pauses;
mod place;
mod plan;
mod process;
mod run;
mod starts;
mod suspended;
mod verbs;
mod worker;
mod world;

#[path = "../support/database.rs"]
mod database;
#[path = "../support/hostile.rs"]
mod hostile_settings;
#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/redis/mod.rs"]
mod redis_servers;
#[path = "../support/rocketmq.rs"]
mod rocketmq_servers;
#[path = "../support/service.rs"]
mod service;
#[path = "../support/setting.rs"]
mod setting;
#[path = "../support/suspend/mod.rs"]
mod suspend;

use std::time::{SystemTime, UNIX_EPOCH};

use self::home::Kept;
use self::place::{Cluster, MariaDb, OneRedis, Postgres, Sqlite};
use self::run::run;

/// The time by the clock of this machine, which is that of all servers, in ms.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(since.as_millis()).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres() {
    run(Kept::Postgres, Postgres::start).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_mariadb() {
    run(Kept::MariaDb, MariaDb::start).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_sqlite() {
    run(Kept::Sqlite, |_| Sqlite::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis() {
    run(Kept::Redis, |_| OneRedis::start()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_redis_cluster() {
    run(Kept::Redis, |_| Cluster::start()).await;
}
