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
    doc = "Delayed tasks with any delay, on RocketMQ, Redis or just your database. The whole page is shown with all features on."
)]
// The RocketMQ client's types are nested deeply; they stay inside the crate, so that no caller needs this.
#![cfg_attr(feature = "rocketmq", recursion_limit = "512")]

mod actor;
pub mod backend;
mod background_sender;
mod backoff;
mod budget;
mod claimant;
pub mod claims;
pub mod clock;
mod coalescer;
pub mod defaults;
pub mod delay;
mod error;
mod events;
pub mod expected;
mod failure_counter;
mod failure_log;
mod fnv;
mod handler;
mod hidden;
pub mod history;
mod kernel;
#[cfg(test)]
#[path = "../tests/support/logged.rs"]
mod logged;
mod metrics;
mod noting;
mod panic_text;
mod paused;
mod pauses;
mod place;
mod receipt;
#[cfg(feature = "redis")]
pub mod redis;
mod request;
mod retry;
#[cfg(feature = "rocketmq")]
pub mod rocketmq;
mod router;
mod scheduler;
pub mod stats;
pub mod store;
mod store_time;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod timestamp;
mod turns;
mod verdict;
mod wheel;
mod worker;

/// The code of the pages in `docs/` is compiled, as that of `README.md` is.
#[cfg(all(
    doctest,
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "rocketmq",
    feature = "sqlite"
))]
mod pages {
    #[doc = include_str!("../docs/a-table-of-your-own.md")]
    mod a_table_of_your_own {}
    #[doc = include_str!("../docs/databases.md")]
    mod databases {}
    #[doc = include_str!("../docs/guarantees.md")]
    mod guarantees {}
    #[cfg(feature = "metrics")]
    #[doc = include_str!("../docs/metrics.md")]
    mod metrics {}
    #[doc = include_str!("../docs/performance.md")]
    mod performance {}
    #[doc = include_str!("../docs/redis.md")]
    mod redis {}
    #[doc = include_str!("../docs/rocketmq.md")]
    mod rocketmq {}
}

pub use error::Error;
pub use events::Events;
pub use handler::{Context, Failure, Outcome};
pub use request::{Answer, NewTask, Scheduled};
pub use retry::Policy;
pub use scheduler::{Scheduler, SchedulerBuilder, Shift};
pub use task::{Key, Kind, State, Task, TaskId};
pub use timestamp::Timestamp;
pub use worker::Worker;
