//! Runs Redis servers of a test's own.
#![allow(dead_code, unused_imports)] // Not every test that starts them asks everything of them.

mod certificates;
mod cluster;
mod patience;
mod ports;
mod process;
mod security;
mod sentinel;
mod server;
mod shared;
mod tls;

pub(crate) use cluster::{Migration, RedisCluster};
pub(crate) use sentinel::RedisSentinel;
pub(crate) use server::RedisServer;
pub(crate) use shared::Shared;
pub(crate) use tls::RedisTlsServer;
