//! Tests the examples, as a user runs them.
//!
//! This crate has the compiler's default limits: `rocketmq_caller` proves by compiling that a service needs no others.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod blog_publish;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../support/database.rs"]
mod database;
#[cfg(feature = "rocketmq")]
mod forward_to_topic;
mod order_auto_cancel;
mod pet_feeding;
mod program;
#[cfg(feature = "redis")]
#[path = "../support/redis/mod.rs"]
mod redis_server;
mod reminders;
#[cfg(feature = "rocketmq")]
mod rocketmq_caller;

/// What the calendar of `reminders` says is wrong, as in the example itself.
#[allow(dead_code, reason = "not all of the calendar is tried")]
type Error = Box<dyn std::error::Error + Send + Sync>;
