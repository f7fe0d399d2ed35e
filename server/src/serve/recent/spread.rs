//! Keeps the distribution of durations.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longer durations count as this: a day.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The durations of something: in milliseconds, to a sixteenth, so that it takes a kilobyte and a half.
#[derive(Debug)]
pub(crate) struct Spread(Histogram<u32>);

impl Default for Spread {
    fn default() -> Self {
        let longest = u64::try_from(LONGEST.as_millis()).unwrap_or(u64::MAX);
        Self(Histogram::new_with_bounds(1, longest, 1).expect("the bounds are valid"))
    }
}

impl Spread {
    pub(super) fn add(&mut self, took: Duration) {
        let millis = u64::try_from(took.min(LONGEST).as_millis()).unwrap_or(u64::MAX);
        self.0.saturating_record(millis);
    }

    pub(super) fn sum<'a>(parts: impl Iterator<Item = &'a Self>) -> Self {
        let mut sum = Self::default();
        for part in parts {
            sum.0.add(&part.0).expect("all have the same bounds");
        }
        sum
    }

    #[cfg(test)]
    pub(crate) fn of(durations: impl IntoIterator<Item = Duration>) -> Self {
        let mut spread = Self::default();
        durations.into_iter().for_each(|took| spread.add(took));
        spread
    }

    /// Counts how many times it happened.
    pub(crate) fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns within what time such a share of them ended; zero, if there are none.
    pub(crate) fn within(&self, share: f64) -> Duration {
        Duration::from_millis(self.0.value_at_quantile(share))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spread(millis: impl IntoIterator<Item = u64>) -> Spread {
        Spread::of(millis.into_iter().map(Duration::from_millis))
    }

    #[test]
    fn shares_are_told_to_a_sixteenth_of_all_parts_together() {
        let (early, late) = (spread(1..=50), spread(51..=100));
        let sum = Spread::sum([&early, &late].into_iter());
        assert_eq!(sum.count(), 100);
        for (share, millis) in [(0.1, 10), (0.5, 50), (0.99, 99), (1.0, 100)] {
            let told = sum.within(share).as_millis();
            assert!((millis..=millis + millis / 16).contains(&told), "{share}: {told}");
        }
        assert_eq!(Spread::default().within(0.5), Duration::ZERO);
    }

    #[test]
    fn what_is_longer_than_a_day_is_a_day_and_little_is_kept_of_each() {
        let spread = spread([0, u64::MAX]);
        assert_eq!(spread.within(0.1), Duration::ZERO);
        let longest = spread.within(1.0).as_secs();
        assert!((86_400..=86_400 * 17 / 16).contains(&longest), "{longest}");
        assert!(spread.0.distinct_values() * size_of::<u32>() <= 1_600);
    }
}
