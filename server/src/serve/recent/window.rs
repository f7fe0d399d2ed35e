//! Keeps values for the last hour.

use std::collections::BTreeMap;
use std::time::Duration;

/// The length of a part, which is forgotten at once, and the number of parts. The newest of them is not full yet.
const PART: Duration = Duration::from_secs(300);
const PARTS: u64 = 12;

/// A value for each part of the last hour that has one. Times are since the beginning.
#[derive(Debug)]
pub(super) struct Window<T>(BTreeMap<u64, T>);

impl<T> Default for Window<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Default> Window<T> {
    /// Returns the value of this time. Values that are older than an hour then are forgotten.
    pub(super) fn at(&mut self, now: Duration) -> &mut T {
        while let Some(first) = self.0.first_entry()
            && *first.key() < oldest(now)
        {
            first.remove();
        }
        self.0.entry(part(now)).or_default()
    }

    /// Iterates over the values of the last hour.
    pub(super) fn within(&self, now: Duration) -> impl Iterator<Item = &T> {
        self.0.range(oldest(now)..).map(|(_, of_part)| of_part)
    }
}

/// Returns how much time is covered: up to an hour, and less than that by a part at the most.
pub(super) fn covers(now: Duration) -> Duration {
    now.saturating_sub(Duration::from_secs(oldest(now) * PART.as_secs()))
}

fn part(now: Duration) -> u64 {
    now.as_secs() / PART.as_secs()
}

fn oldest(now: Duration) -> u64 {
    part(now).saturating_sub(PARTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(minutes: u64) -> Duration {
        Duration::from_secs(60 * minutes)
    }

    #[test]
    fn what_is_told_is_of_the_last_hour_and_no_more_is_kept() {
        let mut window: Window<u64> = Window::default();
        let mut sum = |now| {
            *window.at(minutes(now)) += 1;
            assert!(window.0.len() <= 12);
            window.within(minutes(now)).sum::<u64>()
        };
        for minute in 0..60 {
            assert_eq!(sum(minute), minute + 1);
        }
        // The first five minutes go at once.
        assert_eq!([60, 61, 62, 63, 64, 65].map(&mut sum), [56, 57, 58, 59, 60, 56]);
        assert_eq!(window.within(minutes(65 + 54)).count(), 2);
        assert_eq!(window.within(minutes(65 + 60)).count(), 0);
    }

    #[test]
    fn what_is_told_of_begins_with_a_part_or_with_the_first_moment() {
        for (now, covered) in [(0, 0), (3, 3), (59, 59), (60, 55), (64, 59), (65, 55), (600, 55)] {
            assert_eq!(covers(minutes(now)), minutes(covered), "{now}");
        }
    }
}
