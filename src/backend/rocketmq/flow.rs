//! Whether wake-ups that a broker has delivered are taken from it.

use std::time::Duration;

use tokio::time::Instant;

/// For how long nothing may be taken of what waits: longer than a batch is held for a worker whose store hangs.
const PATIENCE: Duration = Duration::from_secs(30);
/// How often brokers are asked.
const ASK_EVERY: Duration = Duration::from_secs(10);

/// What a broker says of a consumer group's place in a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    /// How far the group has taken what was delivered, in messages of all queues together.
    pub(super) up_to: u64,
    /// How many it has not taken yet.
    pub(super) left: u64,
}

/// Knows for how long nothing has been taken of what waits on one broker.
#[derive(Debug, Default)]
pub(super) struct Flow {
    asked: Option<Instant>,
    /// Since when, and how far it was taken then.
    stands: Option<(Instant, u64)>,
    has_stopped: bool,
}

/// What is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// Wake-ups are delivered, and nobody takes them.
    Stopped,
    /// They are taken again.
    Flows,
}

impl Flow {
    /// Whether it is time to ask; then it counts as asked.
    pub(super) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.asked.is_none_or(|asked| now - asked >= ASK_EVERY);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }

    /// Takes note of what a broker says; gives what is news.
    pub(super) fn look(&mut self, now: Instant, taken: Taken) -> Option<News> {
        let stands = self
            .stands
            .filter(|(_, up_to)| taken.left > 0 && *up_to == taken.up_to);
        let Some((since, _)) = stands else {
            self.stands = Some((now, taken.up_to)).filter(|_| taken.left > 0);
            return std::mem::take(&mut self.has_stopped).then_some(News::Flows);
        };
        if self.has_stopped || now - since < PATIENCE {
            return None;
        }
        self.has_stopped = true;
        Some(News::Stopped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn news(looks: &[(u64, u64, u64)]) -> Vec<(u64, News)> {
        let (mut flow, start) = (Flow::default(), Instant::now());
        let news = looks.iter().filter_map(|&(second, up_to, left)| {
            let news = flow.look(start + Duration::from_secs(second), Taken { up_to, left })?;
            Some((second, news))
        });
        news.collect()
    }

    #[test]
    fn what_is_taken_flows_however_much_waits() {
        let looks: Vec<_> = (0..100).map(|at| (10 * at, at, 1_000_000)).collect();
        assert_eq!(news(&looks), []);
    }

    #[test]
    fn nothing_is_missed_where_nothing_waits() {
        assert_eq!(
            news(&[
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
            news(&[
                (0, 7, 1),
                (29, 7, 5),
                (30, 7, 5),
                (40, 7, 6),
                (50, 8, 5),
                (60, 8, 5),
                (79, 8, 5),
                (80, 8, 5)
            ]),
            [(30, News::Stopped), (50, News::Flows), (80, News::Stopped)]
        );
        // A group whose place was deleted begins anew.
        assert_eq!(
            news(&[(0, 7, 1), (30, 7, 1), (40, 0, 8)]),
            [(30, News::Stopped), (40, News::Flows)]
        );
    }

    #[test]
    fn brokers_are_not_asked_at_every_look() {
        let (mut flow, start) = (Flow::default(), Instant::now());
        let asked: Vec<_> = (0..25)
            .filter(|&second| flow.is_due(start + Duration::from_secs(second)))
            .collect();
        assert_eq!(asked, [0, 10, 20]);
    }
}
