//! What is told to whoever collects figures: the only place that knows instruments by their names.
//!
//! With the feature `metrics` it goes to the recorder that the process has installed for the crate of that name, if it has
//! any. Without the feature all that is called here is empty.

#[cfg(all(feature = "metrics", feature = "rocketmq"))]
mod brokers;
#[cfg(feature = "metrics")]
mod given;
#[cfg(feature = "metrics")]
pub(crate) mod instruments;
#[cfg(feature = "metrics")]
mod kinds;
#[cfg(all(feature = "metrics", feature = "rocketmq"))]
mod level_samples;
#[cfg(feature = "metrics")]
mod recorded;
#[cfg(all(test, feature = "metrics", feature = "rocketmq"))]
mod told;
#[cfg(not(feature = "metrics"))]
mod unrecorded;

#[cfg(all(feature = "metrics", feature = "rocketmq"))]
pub(crate) use self::brokers::{level_is_stuck, sent_to_broker};
#[cfg(feature = "metrics")]
pub(crate) use self::kinds::OTHER;
#[cfg(all(feature = "metrics", feature = "rocketmq"))]
pub(crate) use self::level_samples::LevelSamples;
#[cfg(feature = "metrics")]
pub(crate) use self::recorded::{Metrics, Stopwatch, verb, wakeups};
#[cfg(all(test, feature = "metrics", feature = "rocketmq"))]
pub(crate) use self::told::told;
#[cfg(all(not(feature = "metrics"), feature = "rocketmq"))]
pub(crate) use self::unrecorded::{LevelSamples, level_is_stuck, sent_to_broker};
#[cfg(not(feature = "metrics"))]
pub(crate) use self::unrecorded::{Metrics, Stopwatch, verb, wakeups};
use crate::store::Ending;

/// What brings a task that somebody claims without a worker.
pub(crate) const CLAIM: &str = "claim";
/// What came of an attempt whose claim was lost.
pub(crate) const LOST: &str = "lost";
/// What a verb answers that could not be done, or of which that is not known.
pub(crate) const ERROR: &str = "error";

/// What came of an attempt, by how its claim ended.
pub(crate) const fn outcome(ending: &Ending) -> &'static str {
    match ending {
        Ending::Done => "done",
        Ending::Dead { .. } => "dead",
        Ending::Retry { .. } => "retry",
        Ending::Snooze { .. } => "snooze",
        Ending::Again { .. } => "again",
        Ending::Release => "released",
        Ending::Moved { .. } => "moved",
        Ending::Cancelled => "cancelled",
    }
}
