//! Carrying wake-ups in Redis: what holds for every backend, and what is special to this one.
#![allow(clippy::unwrap_used)]

mod carrying;
mod cluster;
#[cfg(feature = "testing")]
mod conformance;
mod failures;
mod own_servers;
#[cfg(feature = "redis-tls")]
mod security;
mod sentinel;
mod servers;
mod shards;
#[path = "../support/redis/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::{Duration, Instant};

use delayline::backend::{Arrival, Backend, Departure, RedisBackend, RedisBackendBuilder, Wake};
use delayline::{Error, TaskId};
use tokio::time::timeout;

use support::RedisServer;

const DUE: &str = "{delayline:wakes:0}:due";
const LEASED: &str = "{delayline:wakes:0}:leased";
const FOREIGN: &str = "{delayline:wakes:0}:foreign";
const HINTS: &str = "{delayline:wakes}:hints:0";
const HOUR: Duration = Duration::from_secs(3_600);
/// Makes a test fail that would hang.
const SAFETY: Duration = Duration::from_secs(300);

fn wake(number: u64) -> Wake {
    Wake {
        id: TaskId::from_bytes(u128::from(number).to_be_bytes()),
        kind: "order.cancel".into(),
        version: 1,
    }
}

/// How a wake-up is kept: the id, the last 4 bytes of the FNV-1a hash of the kind, the version.
fn member(wake: &Wake) -> Vec<u8> {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let kind = wake.kind.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let mut member = wake.id.as_bytes().to_vec();
    member.extend_from_slice(&kind.to_be_bytes()[4..]);
    member.push(u8::try_from(wake.version).unwrap());
    member
}

fn departure(number: u64, delay: Duration) -> Departure {
    Departure {
        wake: wake(number),
        delay,
    }
}

fn backend(server: &RedisServer) -> RedisBackend {
    builder(server).build().unwrap()
}

fn builder(server: &RedisServer) -> RedisBackendBuilder {
    RedisBackend::builder(&server.url())
}

fn wakes(arrivals: &[Arrival]) -> Vec<Wake> {
    arrivals.iter().map(|arrival| arrival.wake.clone()).collect()
}

/// Returns the result of `future`, unless it hangs.
async fn safely<T>(future: impl Future<Output = T>) -> T {
    timeout(SAFETY, future).await.expect("the test hangs")
}

fn ask<T: redis::FromRedisValue>(server: &RedisServer, command: &[&str]) -> T {
    let (name, args) = command.split_first().unwrap();
    redis::cmd(name).arg(args).query(&mut server.admin()).unwrap()
}

/// Sends until it succeeds, and returns for how long it failed.
async fn send_until_taken(backend: &RedisBackend, batch: &[Departure]) -> Duration {
    let began = Instant::now();
    safely(async {
        while let Err(error) = backend.send(batch).await {
            assert!(error.cause.is_transient(), "{error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    began.elapsed()
}

/// Sends, and fails as soon as that does, unless it took as long as a send waits: the machine may stand still.
async fn send_at_once(backend: &RedisBackend, batch: &[Departure]) {
    safely(async {
        while let Err(error) = backend.send(batch).await {
            assert!(error.cause.to_string().contains("no answer within"), "{error}");
        }
    })
    .await;
}

/// Waits until the server answers at all, which takes longer than a second where the machine stands still.
async fn until_healthy(backend: &RedisBackend) {
    safely(async {
        while let Err(error) = backend.health().await {
            assert!(error.is_transient(), "{error}");
        }
    })
    .await;
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
        &["PUBSUB", "NUMSUB", HINTS],
        |(_, listening): &(String, u64)| *listening == count,
    )
    .await;
}

/// Waits until the only receiver sleeps: it listens, and has stopped asking the server.
async fn until_asleep(server: &RedisServer) {
    until_listening(server, 1).await;
    until_quiet(server).await;
}

/// Waits until no client asks the server any more.
async fn until_quiet(server: &RedisServer) {
    let calls = || info(server, "commandstats", "cmdstat_time:calls");
    safely(async {
        let mut before = 0;
        while before != calls() {
            before = calls();
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
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
