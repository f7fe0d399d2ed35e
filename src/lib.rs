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
// The RocketMQ client's types are nested deeply; they stay inside the crate, so callers do not need this limit.
#![cfg_attr(feature = "rocketmq", recursion_limit = "512")]

pub mod backend;
pub mod clock;
pub mod delay;
#[cfg(test)]
#[path = "../tests/support/logged.rs"]
mod logged;
mod observe;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "rocketmq")]
pub mod rocketmq;
mod route;
mod schedule;
pub mod store;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod work;

/// Compiles the code of the pages in `docs/`, like that of `README.md`.
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
    #[doc = include_str!("../docs/metrics.md")]
    mod metrics {}
    #[doc = include_str!("../docs/performance.md")]
    mod performance {}
    #[doc = include_str!("../docs/redis.md")]
    mod redis {}
    #[doc = include_str!("../docs/rocketmq.md")]
    mod rocketmq {}
}

pub use self::observe::events::Events;
pub use self::observe::{history, stats};
pub use self::schedule::{Scheduler, SchedulerBuilder};
pub use self::task::answer::{Answer, Scheduled};
pub use self::task::defaults;
pub use self::task::edit::Edit;
pub use self::task::error::Error;
pub use self::task::new_task::NewTask;
pub use self::task::shift::Shift;
pub use self::task::timestamp::Timestamp;
pub use self::task::{Key, Kind, State, Task, TaskId};
pub use self::work::handler::{Context, Failure, Outcome};
pub use self::work::retry::Policy;
pub use self::work::worker::Worker;
pub use self::work::{claims, expected};
