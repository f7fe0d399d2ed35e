//! A moment by every clock that this machine has.

use std::time::Duration;

use tokio::time::Instant;

use crate::Timestamp;
use crate::task::timestamp::duration;

/// A moment from which time is counted that passes also while the machine sleeps.
///
/// The monotonic clock stands still during a suspend, and a lease does not. So the time since a moment is the longest
/// that any clock tells: the monotonic one, the one since boot, which counts suspends, and the wall clock, which tells
/// of the pauses of a virtual machine that the others may not see. A wall clock that is stepped forwards makes it too
/// long, which costs a renewal; one that is stepped back is overruled by the others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(super) instant: Instant,
    /// None where the system has no such clock, or its monotonic one goes on during a suspend.
    pub(super) since_boot: Option<Duration>,
    pub(super) wall: Timestamp,
}

impl Moment {
    /// How much time has passed from `self` to a later moment.
    pub(crate) fn until(&self, later: &Self) -> Duration {
        // The wall clock is read in whole milliseconds.
        self.steadily_until(later)
            .max(duration(later.wall.millis_since(self.wall)))
    }

    /// The same by those clocks that are never stepped.
    pub(crate) fn steadily_until(&self, later: &Self) -> Duration {
        let monotonic = later.instant.saturating_duration_since(self.instant);
        let since_boot = match (self.since_boot, later.since_boot) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => Duration::ZERO,
        };
        monotonic.max(since_boot)
    }

    /// How much of the time to a later moment the machine has slept: the monotonic clock does not count that.
    pub(crate) fn slept_until(&self, later: &Self) -> Duration {
        let awake = later.instant.saturating_duration_since(self.instant);
        let slept = self.steadily_until(later).saturating_sub(awake);
        // The clocks are not read at the very same moment.
        Duration::from_millis(u64::try_from(slept.as_millis()).unwrap_or(u64::MAX))
    }

    /// The moment by the monotonic clock.
    pub(crate) fn instant(&self) -> Instant {
        self.instant
    }
}

/// The time since boot, suspends included.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn since_boot() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_BOOTTIME).ok().map(Duration::from)
}

/// The time since boot, suspends included: what POSIX calls monotonic is so on Apple's systems, and what Rust does not.
#[cfg(target_vendor = "apple")]
pub(super) fn since_boot() -> Option<Duration> {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_MONOTONIC).ok().map(Duration::from)
}

/// Elsewhere the wall clock is the only witness.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
pub(super) fn since_boot() -> Option<Duration> {
    None
}
