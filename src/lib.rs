//! Any delay on the RocketMQ brokers you have.

// The RocketMQ client's types are nested deeply; they stay inside the crate, so that no caller needs this.
#![cfg_attr(feature = "rocketmq", recursion_limit = "512")]

pub mod backend;
mod clock;
pub mod defaults;
pub mod delay;
mod error;
mod request;
pub mod store;
mod task;
#[cfg(feature = "testing")]
pub mod testing;
mod timestamp;
mod wake;
mod wheel;

pub use clock::{Clock, Spawned};
pub use delay::{LevelTable, Routing};
pub use error::Error;
pub use request::{Answer, NewTask, Scheduled, Target, When};
pub use task::{Key, Kind, State, Task, TaskId};
pub use timestamp::Timestamp;
pub use wake::Wake;
