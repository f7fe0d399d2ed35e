//! Carrying wake-ups in Redis: what holds for every backend, and what is special to this one.
#![cfg(feature = "redis")]
#![allow(clippy::unwrap_used)]

mod carrying;
#[cfg(feature = "testing")]
mod conformance;
mod failures;
mod servers;
#[path = "../support/redis/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline::backend::{Arrival, Backend, Departure, RedisBackend};
use delayline::{Error, TaskId, Wake};
use tokio::time::timeout;

use support::RedisServer;

const DUE: &str = "{delayline}:due";
const LEASED: &str = "{delayline}:leased";
const EARLIER: &str = "{delayline}:earlier:0";
const HOUR: Duration = Duration::from_secs(3_600);
/// Only so that a defect does not hang the tests.
const SAFETY: Duration = Duration::from_secs(60);

fn wake(number: u64) -> Wake {
    Wake {
        id: TaskId::from_bytes(u128::from(number).to_be_bytes()),
        kind: "order.cancel".into(),
        version: 1,
    }
}

fn departure(number: u64, delay: Duration) -> Departure {
    Departure {
        wake: wake(number),
        delay,
    }
}

fn backend(server: &RedisServer) -> RedisBackend {
    RedisBackend::connect(&server.url()).unwrap()
}

fn wakes(arrivals: &[Arrival]) -> Vec<Wake> {
    arrivals.iter().map(|arrival| arrival.wake.clone()).collect()
}

/// What `future` gives, unless it hangs.
async fn safely<T>(future: impl Future<Output = T>) -> T {
    timeout(SAFETY, future).await.expect("the test hangs")
}

fn ask<T: redis::FromRedisValue>(server: &RedisServer, command: &[&str]) -> T {
    let (name, args) = command.split_first().unwrap();
    redis::cmd(name).arg(args).query(&mut server.admin()).unwrap()
}

/// Waits until the server answers as wished.
async fn until<T: redis::FromRedisValue>(
    server: &RedisServer,
    command: &[&str],
    wished: impl Fn(&T) -> bool,
) {
    safely(async {
        while !wished(&ask(server, command)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
}

/// Waits until `count` receivers sleep and listen.
async fn until_listening(server: &RedisServer, count: u64) {
    until(
        server,
        &["PUBSUB", "NUMSUB", EARLIER],
        |(_, listening): &(String, u64)| *listening == count,
    )
    .await;
}

/// Waits until the only receiver sleeps, after one call of `send` and one look.
async fn until_asleep(server: &RedisServer) {
    until(server, &["INFO", "commandstats"], |stats: &String| {
        stats.contains("cmdstat_time:calls=2,")
    })
    .await;
}

/// One number of `INFO`.
fn info(server: &RedisServer, section: &str, field: &str) -> u64 {
    let text: String = ask(server, &["INFO", section]);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(field))
        .unwrap_or("0");
    let digits: String = line
        .chars()
        .skip_while(|c| !c.is_ascii_digit())
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().unwrap_or(0)
}
