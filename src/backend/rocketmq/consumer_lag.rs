//! Detects whether workers consume the wake-ups that a broker has delivered.

use std::time::Duration;

use tokio::time::Instant;

/// For how long nothing may be consumed of waiting messages: longer than a batch is held for a worker whose store
/// hangs.
const STALLED_AFTER: Duration = Duration::from_secs(30);
/// How often brokers are asked.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// A consumer group's place in a topic, by the broker's figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// How many messages of all queues together the group has consumed.
    pub(super) consumed: u64,
    /// How many it has not consumed yet.
    pub(super) lag: u64,
}

/// Measures for how long nothing has been consumed of what waits on one broker.
#[derive(Debug, Default)]
pub(super) struct LagMonitor {
    asked: Option<Instant>,
    /// Since when nothing has been consumed of what waits, and how much had been then.
    stalled_at: Option<(Instant, u64)>,
    is_stalled: bool,
}

/// Consumption has stopped, or continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LagChange {
    /// Wake-ups are delivered and not consumed.
    Stalled,
    /// They are consumed again.
    Resumed,
}

impl LagMonitor {
    /// Says whether it is time to ask; then it counts as asked.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.asked.is_none_or(|asked| now - asked >= ASK_EVERY);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// Records a broker's figures; returns what has changed.
    pub(super) fn observe(&mut self, now: Instant, progress: Progress) -> Option<LagChange> {
        let stalled_at = self
            .stalled_at
            .filter(|(_, consumed)| progress.lag > 0 && *consumed == progress.consumed);
        let Some((since, _)) = stalled_at else {
            self.stalled_at = Some((now, progress.consumed)).filter(|_| progress.lag > 0);
            return std::mem::take(&mut self.is_stalled).then_some(LagChange::Resumed);
        };
        if self.is_stalled || now - since < STALLED_AFTER {
            return None;
        }
        self.is_stalled = true;
        Some(LagChange::Stalled)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(observed: &[(u64, u64, u64)]) -> Vec<(u64, LagChange)> {
        let (mut monitor, start) = (LagMonitor::default(), Instant::now());
        let changes = observed.iter().filter_map(|&(second, consumed, lag)| {
            let change = monitor.observe(start + Duration::from_secs(second), Progress { consumed, lag })?;
            Some((second, change))
        });
        changes.collect()
    }

    #[test]
    fn what_is_consumed_has_not_stalled_however_much_waits() {
        let observed: Vec<_> = (0..100).map(|at| (10 * at, at, 1_000_000)).collect();
        assert_eq!(changes(&observed), []);
    }

    #[test]
    fn nothing_is_missed_where_nothing_waits() {
        assert_eq!(
            changes(&[
                (0, 7, 0),
                (1_000, 7, 0),
                (2_000, 7, 3),
                (2_029, 7, 9),
                (2_029, 9, 0)
            ]),
            []
        );
    }

    #[test]
    fn what_waits_for_longer_than_patience_is_told_once_and_that_it_goes_on_as_well() {
        assert_eq!(
            changes(&[
                (0, 7, 1),
                (29, 7, 5),
                (30, 7, 5),
                (40, 7, 6),
                (50, 8, 5),
                (60, 8, 5),
                (79, 8, 5),
                (80, 8, 5)
            ]),
            [
                (30, LagChange::Stalled),
                (50, LagChange::Resumed),
                (80, LagChange::Stalled)
            ]
        );
        // A group whose offsets were deleted begins again.
        assert_eq!(
            changes(&[(0, 7, 1), (30, 7, 1), (40, 0, 8)]),
            [(30, LagChange::Stalled), (40, LagChange::Resumed)]
        );
    }

    #[test]
    fn brokers_are_not_asked_at_every_health_check() {
        let (mut monitor, start) = (LagMonitor::default(), Instant::now());
        let asked: Vec<_> = (0..25)
            .filter(|&second| monitor.is_due(start + Duration::from_secs(second)))
            .collect();
        assert_eq!(asked, [0, 10, 20]);
    }
}
