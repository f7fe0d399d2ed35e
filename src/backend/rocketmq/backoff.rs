//! When something that failed is tried again.

use std::time::Duration;

use tokio::time::Instant;

/// The pause after a first failure; it doubles with every further one.
const FIRST: Duration = Duration::from_secs(1);
/// The longest pause.
const LONGEST: Duration = Duration::from_secs(60);

/// Counts failures in a row, and says when the next try is due.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    next: Option<Instant>,
}

impl Backoff {
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.next.is_none_or(|next| next <= now)
    }

    /// A try has failed; says whether it was the first one.
    pub(super) fn failed(&mut self, now: Instant) -> bool {
        let pause = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.next = Some(now + pause);
        self.failures = self.failures.saturating_add(1);
        self.failures == 1
    }

    /// A try has succeeded.
    pub(super) fn succeeded(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_minute_and_start_anew_after_a_success() {
        let mut backoff = Backoff::default();
        let now = Instant::now();
        let pause = |backoff: &Backoff| {
            let millis = (0..100).map(|second| Duration::from_millis(second * 1_000));
            millis
                .into_iter()
                .find(|&after| backoff.is_due(now + after))
                .unwrap()
                .as_secs()
        };
        assert_eq!(pause(&backoff), 0);
        let pauses: Vec<_> = (0..8)
            .map(|failures| {
                assert_eq!(backoff.failed(now), failures == 0);
                pause(&backoff)
            })
            .collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        backoff.succeeded();
        assert_eq!(pause(&backoff), 0);
    }
}
