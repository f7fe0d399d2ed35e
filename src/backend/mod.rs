//! Carries wake-ups: the trait, and its implementations.

mod in_process;
mod levels;
mod look_ahead;
#[cfg(feature = "redis")]
mod redis;
#[cfg(feature = "rocketmq")]
mod rocketmq;
mod timing_wheel;
mod wheel;
mod woken_by;

use std::fmt::Debug;
use std::time::Duration;

use async_trait::async_trait;

pub use self::levels::LevelsBackend;
pub(crate) use self::look_ahead::LookAhead;
#[cfg(feature = "redis")]
pub use self::redis::{RedisBackend, RedisBackendBuilder, RedisCheckup, ShardCheckup};
#[cfg(feature = "rocketmq")]
pub use self::rocketmq::{RocketMqBackend, RocketMqTimers};
pub use self::wheel::WheelBackend;
pub use self::woken_by::WokenBy;
use crate::Error;
pub use crate::delay::reach::{Delays, Reach};
pub use crate::task::wake::Wake;

/// Carries wake-ups from a moment to a later one.
///
/// At least once is enough, early is allowed, and it does not matter if a backend loses everything: the rows are in the
/// store, and the sweep finds those whose wake-up did not come. So a backend is free to be simple and fast. The
/// conformance suite in `delayline::testing` (feature `testing`) checks an implementation against this page; a short
/// one, with its test, is the example `own_backend`.
///
/// Write an implementation under `#[async_trait::async_trait]`, of the crate `async-trait`, with the methods as `async
/// fn`. Failures are [`Error::Backend`], whose fields are the implementation's own to fill: `transient` is true where
/// the same call may succeed later. Pass it to [`SchedulerBuilder::carrier`](crate::SchedulerBuilder::carrier), or, if
/// it holds any delay ([`Reach::Any`]), to [`SchedulerBuilder::precise`](crate::SchedulerBuilder::precise); then every
/// [`Worker`](crate::Worker) of that scheduler receives from it.
#[async_trait]
pub trait Backend: Debug + Send + Sync {
    /// Returns a short name for logs and errors, such as `redis`.
    fn name(&self) -> &'static str;

    /// Returns which delays it can hold.
    fn delays(&self) -> Delays;

    /// Takes a batch of wake-ups, each to be received no earlier than about its delay from now by the backend's own
    /// clock. Whether a wake-up that it holds already (same id, same version) arrives once or twice is up to it.
    ///
    /// Nothing may be assumed of a batch whose call was abandoned: each part of it was taken or not.
    async fn send(&self, batch: &[Departure]) -> Result<(), SendError>;

    /// Removes wake-ups that are no longer needed, each by its id and version, if it can. A hint: it may do nothing.
    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error>;

    /// Waits until at least one wake-up has arrived and takes up to `max` (at least 1) of them, without polling for
    /// them.
    ///
    /// Each wake-up goes to one receiver; it may be given again if it is not acknowledged. The first call starts what
    /// receiving needs, such as a consumer, as a process that only sends makes none. Bytes that are no wake-up are
    /// counted and dropped. An error is returned only when waiting longer would not mend it by itself.
    ///
    /// Several may receive at once, each with a call of its own. A call that is dropped before it ends loses nothing.
    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error>;

    /// Acknowledges arrivals: they need not come again.
    ///
    /// It returns no error: an arrival that stays unacknowledged comes again, names a past version of its row, and is
    /// dropped.
    async fn acknowledge(&self, arrivals: Vec<Arrival>);

    /// Counts received messages that were no wake-ups, and were dropped. They may come from anywhere; many of them mean
    /// that another system uses the same topic or key.
    fn foreign(&self) -> u64 {
        0
    }

    /// Checks whether sending would work now.
    async fn health(&self) -> Result<(), Error>;

    /// Stops receiving and releases connections and threads; what it holds stays where it is durable.
    ///
    /// From then on `receive` (also a waiting call), `send` and `health` fail at once, with an error that is not
    /// transient. Closing again does nothing.
    async fn close(&self) -> Result<(), Error>;
}

/// A wake-up to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// What to send.
    pub wake: Wake,
    /// How long to hold it from now; for a backend with levels, exactly the delay of one of them.
    pub delay: Duration,
}

/// A wake-up that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// What has arrived.
    pub wake: Wake,
    /// The backend's own mark, by which it knows which arrival is acknowledged; for example 0 where acknowledging does
    /// nothing.
    pub ticket: u64,
}

/// Says that some of a batch were not taken, as far as the backend knows.
#[derive(Debug, thiserror::Error)]
#[error("{} of a batch were not sent: {cause}", failed.len())]
pub struct SendError {
    /// The places in the batch of those that were not taken, or whose fate is unknown; ascending.
    pub failed: Vec<usize>,
    /// The cause of the first failure.
    pub cause: Error,
}

impl SendError {
    /// Makes the error of a batch of `count` that failed as a whole for one `cause`.
    pub fn all(count: usize, cause: Error) -> Self {
        Self {
            failed: (0..count).collect(),
            cause,
        }
    }
}
