//! Keeps values for the last hour.

use std::collections::BTreeMap;
use std::time::Duration;

/// The time that is covered.
const HOUR: u64 = 3_600;
/// The length of a part of distributions, which is forgotten at once. The newest part is not full yet.
const PART: u64 = 300;

/// A value for each part of the last hour that has one; a part has so many seconds. Times are since the beginning.
#[derive(Debug)]
pub(super) struct Window<T, const SECONDS: u64 = PART>(BTreeMap<u64, T>);

impl<T, const SECONDS: u64> Default for Window<T, SECONDS> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Default, const SECONDS: u64> Window<T, SECONDS> {
    /// Returns the value of this time. Values that are older than an hour then are forgotten.
    pub(super) fn at(&mut self, now: Duration) -> &mut T {
        while let Some(first) = self.0.first_entry()
            && *first.key() < oldest(now, SECONDS)
        {
            first.remove();
        }
        self.0.entry(part(now, SECONDS)).or_default()
    }

    /// Iterates over the values of the last hour.
    pub(super) fn within(&self, now: Duration) -> impl Iterator<Item = &T> {
        self.0.range(oldest(now, SECONDS)..).map(|(_, of_part)| of_part)
    }

    /// Iterates over the values of the last hour, the oldest first, each with its place in the hour.
    pub(super) fn placed(&self, now: Duration) -> impl Iterator<Item = (usize, &T)> {
        let (first, newest) = (oldest(now, SECONDS), part(now, SECONDS));
        let last = usize::try_from(HOUR / SECONDS - 1).unwrap_or(usize::MAX);
        let placed = self.0.range(first..=newest);
        placed.map(move |(at, of_part)| (last - usize::try_from(newest - at).unwrap_or(last), of_part))
    }
}

/// Returns how much time distributions cover: up to an hour, and less than that by a part at the most.
pub(super) fn covers(now: Duration) -> Duration {
    now.saturating_sub(Duration::from_secs(oldest(now, PART) * PART))
}

fn part(now: Duration, seconds: u64) -> u64 {
    now.as_secs() / seconds
}

fn oldest(now: Duration, seconds: u64) -> u64 {
    part(now, seconds).saturating_sub(HOUR / seconds - 1)
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
    fn each_minute_has_its_place_in_the_hour() {
        let mut window: Window<u64, 60> = Window::default();
        for (minute, value) in [(3, 1), (10, 2), (70, 3)] {
            *window.at(minutes(minute)) += value;
            assert!(window.0.len() <= 60);
        }
        let placed = |now| {
            window
                .placed(minutes(now))
                .map(|(at, of)| (at, *of))
                .collect::<Vec<_>>()
        };
        assert_eq!(placed(70), [(59, 3)], "60 minutes ago is no part of it");
        assert_eq!(placed(80), [(49, 3)]);
        assert_eq!(placed(130), []);
    }

    #[test]
    fn what_is_told_of_begins_with_a_part_or_with_the_first_moment() {
        for (now, covered) in [(0, 0), (3, 3), (59, 59), (60, 55), (64, 59), (65, 55), (600, 55)] {
            assert_eq!(covers(minutes(now)), minutes(covered), "{now}");
        }
    }
}
