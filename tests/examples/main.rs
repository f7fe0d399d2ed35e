//! The examples, as a user runs them.
//!
//! This crate has the compiler's default limits: `rocketmq_caller` is proof by compiling that a service needs no others.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod blog_publish;
#[cfg(any(feature = "postgres", feature = "mysql"))]
#[path = "../support/database.rs"]
mod database;
#[path = "../support/example.rs"]
mod example;
#[cfg(feature = "rocketmq")]
mod forward_to_topic;
mod order_auto_cancel;
mod pet_feeding;
#[cfg(feature = "redis")]
#[path = "../support/redis/mod.rs"]
mod redis_server;
mod reminders;
#[cfg(feature = "rocketmq")]
mod rocketmq_caller;

use std::time::Duration;

/// So that a test that hangs ends some time; it says nothing about how long anything should take.
const HANGS_AFTER: Duration = Duration::from_secs(180);

/// What the calendar of `reminders` says is wrong, as in the example itself.
#[allow(dead_code, reason = "not all of the calendar is tried")]
type Error = Box<dyn std::error::Error + Send + Sync>;
