//! A nemesis that is not only a killer.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod network;

#[path = "../support/proxy.rs"]
mod proxy;
