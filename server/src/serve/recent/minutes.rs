//! The course of the last hour, minute by minute.

use std::time::Duration;

use super::window::Window;

/// The minutes of the course.
pub(crate) const MINUTES: usize = 60;

/// What was started within a minute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Minute {
    /// How many tasks.
    pub(crate) started: u32,
    /// How late the latest of them was, in ms.
    pub(crate) latest: u32,
}

impl Minute {
    fn add(&mut self, started: u32, latest: u32) {
        self.started = self.started.saturating_add(started);
        self.latest = self.latest.max(latest);
    }
}

/// The minutes in which tasks were started: 8 bytes each, so that those of an hour take less than a distribution of five
/// minutes.
#[derive(Debug, Default)]
pub(super) struct Minutes(Window<Minute, 60>);

impl Minutes {
    pub(super) fn started(&mut self, late: Duration, now: Duration) {
        let late = u32::try_from(late.as_millis()).unwrap_or(u32::MAX);
        self.0.at(now).add(1, late);
    }

    /// Adds them up, the oldest minute first.
    pub(super) fn course<'a>(of: impl Iterator<Item = &'a Self>, now: Duration) -> [Minute; MINUTES] {
        let mut course = [Minute::default(); MINUTES];
        for (at, minute) in of.flat_map(|minutes| minutes.0.placed(now)) {
            course[at].add(minute.started, minute.latest);
        }
        course
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_course_has_the_sum_of_starts_and_the_latest_of_each_minute() {
        let at = |minute: u64| Duration::from_secs(60 * minute + 30);
        let (mut one, mut other) = (Minutes::default(), Minutes::default());
        for late in [20, 500, 30] {
            one.started(Duration::from_millis(late), at(4));
        }
        other.started(Duration::from_millis(40), at(4));
        other.started(Duration::MAX, at(5));
        let course = Minutes::course([&one, &other].into_iter(), at(5));
        let minute = |started, latest| Minute { started, latest };
        assert_eq!(course[58..], [minute(4, 500), minute(1, u32::MAX)]);
        assert_eq!(course[..58], [Minute::default(); 58]);
    }
}
