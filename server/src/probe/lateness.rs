//! Holds the outcomes of the probes of a level.

use delayline::Error;
use delayline::delay::Level;

/// The outcomes of the probes of a level.
#[derive(Debug)]
pub(crate) struct Probed {
    pub(crate) level: Level,
    /// How many are known to have been sent.
    pub(crate) sent: usize,
    /// How many are not known to have been sent, and have not arrived either.
    pub(crate) unsent: usize,
    /// How many were sent more than once.
    pub(crate) again: usize,
    /// The cause of the first failed try.
    pub(crate) cause: Option<Error>,
    /// How late each arrival was, in ms, ascending; below 0 is early.
    pub(crate) late: Vec<i64>,
    /// How many arrived more than once.
    pub(crate) doubled: usize,
}

impl Probed {
    /// Counts those that were sent and did not arrive.
    pub(crate) fn lost(&self) -> usize {
        self.sent.saturating_sub(self.late.len())
    }

    /// Returns the lateness, in ms, that this many of a hundred do not exceed: one that was measured.
    pub(crate) fn percentile(&self, percent: usize) -> Option<i64> {
        let rank = (self.late.len() * percent).div_ceil(100);
        self.late.get(rank.saturating_sub(1)).copied()
    }
}

#[cfg(test)]
pub(crate) fn probed(late: impl IntoIterator<Item = i64>) -> Probed {
    let mut late: Vec<i64> = late.into_iter().collect();
    late.sort_unstable();
    Probed {
        level: delayline::delay::LevelTable::default()
            .levels()
            .next()
            .expect("it has levels"),
        sent: late.len(),
        unsent: 0,
        again: 0,
        cause: None,
        late,
        doubled: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_measured_values() {
        let percentiles = |probed: Probed| [50, 99, 100].map(|percent| probed.percentile(percent));
        assert_eq!(percentiles(probed([])), [None; 3]);
        assert_eq!(percentiles(probed([7])), [Some(7); 3]);
        assert_eq!(percentiles(probed([2, -1])), [Some(-1), Some(2), Some(2)]);
        assert_eq!(percentiles(probed(1..=100)), [50, 99, 100].map(Some));
        assert_eq!(percentiles(probed(1..=1_000)), [500, 990, 1_000].map(Some));
    }
}
