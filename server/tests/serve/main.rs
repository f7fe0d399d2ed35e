//! `delayline serve`, as its users meet it: the binary, a configuration, and HTTP.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod access;
#[cfg(feature = "rocketmq")]
mod brokers;
mod bulk;
mod claims;
mod client_webhooks;
mod clients;
#[cfg(target_os = "linux")]
mod connections;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../../../tests/support/database.rs"]
mod database;
mod described;
mod editing;
mod events;
mod explain;
mod forecast;
mod fuzz;
#[cfg(feature = "rocketmq")]
mod gateway;
#[cfg(feature = "rocketmq")]
mod gateway_clients;
#[cfg(unix)]
mod kept;
mod kinds;
#[cfg(target_os = "linux")]
mod memory;
mod metrics;
#[cfg(all(feature = "rocketmq", feature = "postgres"))]
mod nemesis;
mod pages;
mod programs;
mod prometheus;
#[cfg(any(feature = "rocketmq", feature = "postgres"))]
#[path = "../../../tests/support/proxy.rs"]
mod proxy;
mod python;
mod receiver;
#[cfg(feature = "redis")]
#[path = "../../../tests/support/redis/mod.rs"]
mod redis_server;
#[cfg(unix)]
mod reload;
mod repeats;
mod reserved;
mod rights;
#[cfg(feature = "rocketmq")]
#[path = "../../../tests/support/rocketmq.rs"]
mod rocketmq_servers;
mod schedule;
mod server;
#[path = "../../../tests/support/setting.rs"]
mod setting;
mod start;
mod stores;
mod tasks;
mod test_clock;
#[cfg(feature = "rocketmq")]
mod test_clock_gateway;
mod test_clock_samples;
#[cfg(feature = "otlp")]
mod traces;
mod verbs;
mod webhooks;
