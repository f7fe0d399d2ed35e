//! Nothing, where metrics are not built in.

use std::time::Duration;

use crate::Kind;
#[cfg(feature = "rocketmq")]
use crate::backend::Wake;
use crate::clock::Clock;
#[cfg(feature = "rocketmq")]
use crate::delay::Level;
use crate::task::claim_id::ClaimId;

#[derive(Debug)]
pub(crate) struct Metrics;

impl Metrics {
    pub(crate) fn new() -> Self {
        Self
    }

    #[inline]
    pub(crate) fn handled(&self, _: &Kind) {}

    #[inline]
    pub(crate) fn started(&self, _: &Kind, _: &'static str, _: Duration) {}

    #[inline]
    pub(crate) fn processed(&self, _: &Kind, _: &'static str, _: Stopwatch, _: &Clock) {}

    #[inline]
    pub(crate) fn attempted(&self, _: &Kind, _: &'static str) {}

    #[inline]
    pub(crate) fn given(&self, _: ClaimId, _: &Kind, _: &Clock) {}

    #[inline]
    pub(crate) fn given_ended(&self, _: ClaimId, _: Option<&Kind>, _: &'static str, _: &Clock) {}
}

#[inline]
pub(crate) fn verb(_: &'static str, _: &'static str, _: usize) {}

#[inline]
pub(crate) fn wakeups(_: &'static str, _: &'static str, _: usize) {}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stopwatch;

impl Stopwatch {
    #[inline]
    pub(crate) fn start(_: &Clock) -> Self {
        Self
    }

    #[cfg(feature = "rocketmq")]
    #[inline]
    pub(crate) fn now() -> Self {
        Self
    }
}

#[cfg(feature = "rocketmq")]
#[inline]
pub(crate) fn level_is_stuck(_: &str, _: Level, _: bool) {}

#[cfg(feature = "rocketmq")]
#[inline]
pub(crate) fn sent_to_broker(_: Stopwatch, _: Option<&'static str>) {}

#[cfg(feature = "rocketmq")]
#[derive(Debug, Default)]
pub(crate) struct LevelSamples;

#[cfg(feature = "rocketmq")]
impl LevelSamples {
    #[inline]
    pub(crate) fn sent(&self, _: &Wake, _: &str, _: Duration, _: Stopwatch) {}

    #[inline]
    pub(crate) fn arrived(&self, _: &Wake) {}
}
