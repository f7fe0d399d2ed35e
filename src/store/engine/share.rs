//! Says how many rows of each kind a call takes, as nothing bounds how many kinds there are.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::defaults;

/// How many rows of all kinds one call is to take, about: so many are read, or removed, in a small part of the time that it has.
const ENOUGH: usize = 10_000;
/// By what factor a share grows at the most, and shrinks after a call that took too long.
const STEP: usize = 8;

/// How many rows of each kind the next call takes: fewer after one that found too many of all kinds together, or that took too
/// long; more, up to its limit, after one that did not. So each kind has its share in each call.
#[derive(Debug)]
pub(super) struct Share(AtomicUsize);

impl Default for Share {
    fn default() -> Self {
        Self(AtomicUsize::new(usize::MAX))
    }
}

impl Share {
    /// Returns how many rows of each kind a call with this limit takes.
    pub(super) fn of(&self, limit: usize) -> usize {
        self.0.load(Ordering::Relaxed).min(limit)
    }

    /// Records how many rows of all kinds a call with this limit has found.
    pub(super) fn found(&self, limit: usize, rows: usize) {
        let next = self.of(limit).saturating_mul(ENOUGH) / rows.max(ENOUGH / STEP);
        if rows > ENOUGH {
            self.0.store(next.max(1), Ordering::Relaxed);
        } else {
            self.0.fetch_max(next.min(limit), Ordering::Relaxed);
        }
    }

    /// Records that a call took too long.
    pub(super) fn lessen(&self) {
        let less = self.of(defaults::SWEEP_LIMIT) / STEP;
        self.0.store(less.max(1), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: usize = defaults::SWEEP_LIMIT;

    /// The shares of calls that find so many rows of each of so many kinds.
    fn shares(share: &Share, kinds: usize, rows: usize) -> Vec<usize> {
        let call = |_| {
            let taken = share.of(LIMIT);
            share.found(LIMIT, kinds * rows.min(taken));
            taken
        };
        (0..5).map(call).collect()
    }

    #[test]
    fn each_kind_has_a_share_of_what_is_enough() {
        let share = Share::default();
        assert_eq!(shares(&share, 20, 500), [500, 500, 500, 500, 500]);
        assert_eq!(shares(&share, 2_000, 500), [500, 5, 5, 5, 5]);
        assert_eq!(shares(&share, 50_000, 500), [5, 1, 1, 1, 1]);
        // Of many that have few each no kind is kept from more.
        assert_eq!(shares(&share, 2_000, 1), [1, 5, 25, 125, 500]);
    }

    #[test]
    fn what_takes_too_long_takes_less() {
        let share = Share::default();
        let mut less = Vec::new();
        for _ in 0..4 {
            share.lessen();
            less.push(share.of(LIMIT));
        }
        assert_eq!(less, [62, 7, 1, 1]);
        assert_eq!(shares(&share, 1, LIMIT), [1, 8, 64, 500, 500]);
    }
}
