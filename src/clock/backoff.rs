//! When something that failed is tried again.

use std::time::Duration;

use tokio::time::Instant;

/// Counts failures in a row, and says how long to wait after each: twice as long as after the one before, up to a limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
    next: Option<Instant>,
}

#[cfg_attr(
    not(all(feature = "redis", feature = "rocketmq")),
    allow(dead_code, reason = "all of it is for those who talk to both")
)]
impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self {
            first,
            longest,
            failures: 0,
            next: None,
        }
    }

    /// For calls of servers.
    pub(crate) const CALLS: Self = Self::new(Duration::from_millis(50), Duration::from_secs(1));

    /// How many tries have failed in a row.
    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// A try has failed; gives the pause before the next.
    pub(crate) fn failed(&mut self, now: Instant) -> Duration {
        let pause = self.first.saturating_mul(1 << self.failures.min(10));
        let pause = pause.min(self.longest);
        self.next = Some(now + pause);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// A try has succeeded.
    pub(crate) fn succeeded(&mut self) {
        *self = Self::new(self.first, self.longest);
    }
}

/// A pause of which half is chance, so that a fleet does not come back at one moment.
#[cfg(feature = "redis")]
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_start_anew_after_a_success() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, 60 * second);
        let now = Instant::now();
        assert!(backoff.is_due(now));
        for (failures, seconds) in [1, 2, 4, 8, 16, 32, 60, 60].into_iter().enumerate() {
            assert_eq!(backoff.failures() as usize, failures);
            let pause = backoff.failed(now);
            assert_eq!(pause, seconds * second);
            assert!(!backoff.is_due(now + pause - Duration::from_millis(1)) && backoff.is_due(now + pause));
        }
        backoff.succeeded();
        assert!(backoff.is_due(now));
        assert_eq!(backoff.failures(), 0);
    }
}
