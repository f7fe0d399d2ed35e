//! Runs tasks after any delay, on RocketMQ, Redis or just the database that you have.
//!
//! A [`Scheduler`] writes a task as a row of a [store], and moves it, cancels it or has it run now with a definite
//! [`Answer`]. A [`Worker`] claims the rows that are due and calls a handler for each. Between them
//! [backends](backend) carry *wake-ups*, which say that it may be time to read a row; without one the store itself is
//! read ahead into a timing wheel. Only the row decides.
//!
//! ```no_run
//! use std::time::Duration;
//!
//! use delayline::store::MemoryStore;
//! use delayline::{Context, Error, Failure, NewTask, Outcome, Scheduler, Worker};
//!
//! #[tokio::main]
//! async fn main() -> Result<(), Error> {
//!     let scheduler = Scheduler::new(MemoryStore::new());
//!     let task = NewTask::new("order.cancel", &42).key("order 42").after(Duration::from_secs(5));
//!     scheduler.schedule(task).await?;
//!     Worker::new(&scheduler).handle("order.cancel", cancel).run().await
//! }
//!
//! async fn cancel(order: u64, context: Context) -> Result<Outcome, Failure> {
//!     println!("order {order} was not paid: cancelled {:?} after its time", context.lateness());
//!     Ok(Outcome::Done)
//! }
//! ```
//!
//! | | |
//! |---|---|
//! | [`store`] | where rows are: SQLite, PostgreSQL, MySQL, Redis, memory, or a table of your own |
//! | [`backend`] | what carries wake-ups: RocketMQ's levels, Redis, a wheel, or one of your own |
//! | [`claims`] | workers that fetch their tasks, such as those of another language |
//! | [`expected`] | tasks that follow a time in your own rows |
//! | [`history`], [`stats`] | what became of a task, and how late tasks start |
//!
//! Features: `sqlite` (on by default), `postgres`, `mysql` and `redis`, a store each; `rocketmq`, and `redis` again, the
//! carriers; `sql-tls`, `rocketmq-tls` and `redis-tls`; `testing`, the conformance suites; `full`. The README of the repository
//! begins with whole programs, and its `docs` have a page for each store and carrier, and one with what is promised.

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

/// Compiles the code of `README.md` and of the pages in `docs/`.
#[cfg(all(
    doctest,
    feature = "mysql",
    feature = "postgres",
    feature = "redis",
    feature = "rocketmq",
    feature = "sqlite"
))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
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
    #[doc = include_str!("../docs/testing-your-service.md")]
    mod testing_your_service {}
}

pub use self::observe::events::Events;
pub use self::observe::{history, stats};
pub use self::schedule::{Scheduler, SchedulerBuilder, expected};
pub use self::task::answer::{Answer, Scheduled};
pub use self::task::defaults;
pub use self::task::edit::Edit;
pub use self::task::error::Error;
pub use self::task::failure::Failure;
pub use self::task::new_task::NewTask;
pub use self::task::shift::Shift;
pub use self::task::timestamp::Timestamp;
pub use self::task::{Key, Kind, State, Task, TaskId};
pub use self::work::claims;
#[cfg(feature = "rocketmq")]
pub use self::work::forward::Forward;
pub use self::work::handler::{Context, Outcome};
pub use self::work::retry::Policy;
pub use self::work::worker::Worker;
