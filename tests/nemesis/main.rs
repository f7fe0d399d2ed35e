//! A nemesis that is not only a killer.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod network;
mod process;
mod suspended;

#[path = "../support/proxy.rs"]
mod proxy;
#[path = "../support/redis/mod.rs"]
mod redis_servers;
#[path = "../support/suspend/mod.rs"]
mod suspend;
