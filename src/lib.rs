#![cfg_attr(
    all(feature = "mysql", feature = "postgres", feature = "redis", feature = "rocketmq", feature = "sqlite"),
    doc = include_str!("../README.md")
)]
#![cfg_attr(
    not(all(
        feature = "mysql",
        feature = "postgres",
        feature = "redis",
        feature = "rocketmq",
        feature = "sqlite"
    )),
    doc = "Any delay on the RocketMQ brokers you have. The whole page is shown with all features on."
)]
// The RocketMQ client's types are nested deeply; they stay inside the crate, so that no caller needs this.
#![cfg_attr(feature = "rocketmq", recursion_limit = "512")]

pub mod backend;
mod clock;
pub mod defaults;
pub mod delay;
mod error;
mod expected;
mod fnv;
mod handler;
mod merger;
mod misses;
mod outbox;
mod place;
mod rearm;
mod receipt;
#[cfg(feature = "redis")]
pub mod redis;
mod request;
mod retry;
#[cfg(feature = "rocketmq")]
pub mod rocketmq;
mod router;
mod scheduler;
mod stats;
pub mod store;
mod store_time;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod timestamp;
mod turns;
mod wake;
mod wheel;
mod worker;

pub use clock::{Clock, Spawned};
pub use delay::{LevelTable, Routing};
pub use error::Error;
pub use expected::{Check, Expected};
pub use handler::{Context, Failure, Outcome, WokenBy};
pub use rearm::{Rearming, rearm};
pub use receipt::Receipt;
pub use request::{Answer, NewTask, Scheduled, Target, When};
pub use retry::Policy;
pub use scheduler::{Scheduler, SchedulerBuilder, Shift};
pub use stats::{Lateness, Stats};
pub use store::{Expect, Page};
pub use task::{Key, Kind, State, Task, TaskId};
pub use timestamp::Timestamp;
pub use wake::Wake;
pub use worker::Worker;
