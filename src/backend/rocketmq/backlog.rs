//! Detects whether a level of a broker still delivers.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// How much later than its delay a message of a level may be delivered before the level counts as stuck: more than a
/// burst of 20,000 takes, and less than operators would accept.
const STUCK_AFTER: Duration = Duration::from_secs(5);
/// How many marks there are within a level's delay: a level that stops is noticed that much earlier than after a whole
/// delay.
const MARKS: u32 = 8;

/// The undelivered messages of one level of one broker, as far as they were observed.
///
/// A level is first in, first out. So everything that was in it at one time has been delivered one delay later, or it
/// is stuck.
#[derive(Debug)]
pub(super) struct Backlog {
    delay: Duration,
    /// When it was observed, and how far its queue then reached; ascending, and none of it delivered.
    marks: VecDeque<(Instant, u64)>,
    stuck: bool,
}

impl Backlog {
    pub(super) fn new(delay: Duration) -> Self {
        Self {
            delay,
            marks: VecDeque::new(),
            stuck: false,
        }
    }

    /// Records how far the level has been delivered, and how far its queue reaches; says whether it is stuck.
    pub(super) fn observe(&mut self, now: Instant, delivered: u64, reaches: u64) -> bool {
        // A queue that has become shorter is another one: the broker has lost its messages.
        self.marks
            .retain(|&(_, mark)| delivered < mark && mark <= reaches);
        let due = |&(at, _): &(Instant, u64)| now.saturating_duration_since(at) > self.delay + STUCK_AFTER;
        self.stuck = self.marks.front().is_some_and(due);
        let last = self.marks.back();
        let is_new = last.is_none_or(|&(at, mark)| {
            mark < reaches && now.saturating_duration_since(at) >= self.delay / MARKS
        });
        if is_new && delivered < reaches {
            self.marks.push_back((now, reaches));
        }
        self.stuck
    }

    /// Says whether it was stuck when it was last observed.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck
    }
}

/// Reads a broker's figure of a level, `"delivered,reaches"` (`scheduleMessageOffset_N` in `BROKER_RUNTIME_INFO`).
pub(super) fn read(figure: &str) -> Option<(u64, u64)> {
    let (delivered, reaches) = figure.split_once(',')?;
    Some((delivered.trim().parse().ok()?, reaches.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DELAY: Duration = Duration::from_secs(80);

    fn at(seconds: u64) -> Instant {
        use std::sync::LazyLock;
        static START: LazyLock<Instant> = LazyLock::new(Instant::now);
        *START + Duration::from_secs(seconds)
    }

    #[test]
    fn a_level_that_delivers_is_never_stuck_however_much_is_in_it() {
        let mut backlog = Backlog::new(DELAY);
        for second in 0..1_000_u64 {
            // 10 each second come in, and go out 80 s later.
            let stuck = backlog.observe(at(second), second.saturating_sub(80) * 10, second * 10);
            assert!(!stuck, "at {second}");
            assert!(backlog.marks.len() <= MARKS as usize + 2);
        }
    }

    #[test]
    fn one_that_stops_is_noticed_within_its_patience_and_an_eighth_of_its_delay_and_again_when_it_goes_on() {
        let mut backlog = Backlog::new(DELAY);
        let mut noticed = None;
        for second in 0..400_u64 {
            let delivered = second.min(200).saturating_sub(80) * 10;
            if backlog.observe(at(second), delivered, second * 10) {
                noticed.get_or_insert(second);
            }
        }
        let noticed = noticed.unwrap();
        assert!((205..=217).contains(&noticed), "{noticed}");
        assert!(!backlog.observe(at(401), 3_210, 4_010));
    }

    #[test]
    fn a_long_wait_for_the_only_message_is_no_stop() {
        let mut backlog = Backlog::new(DELAY);
        assert!(!backlog.observe(at(0), 5, 6));
        assert!(!backlog.observe(at(84), 5, 6));
        assert!(backlog.observe(at(86), 5, 6));
        assert!(backlog.is_stuck());
        assert!(!backlog.observe(at(87), 6, 6));
    }

    #[test]
    fn a_broker_that_lost_its_messages_is_not_held_to_them() {
        let mut backlog = Backlog::new(DELAY);
        backlog.observe(at(0), 5, 6);
        assert!(!backlog.observe(at(100), 0, 0));
    }

    #[test]
    fn a_figure_is_two_numbers() {
        assert_eq!(read("12,34"), Some((12, 34)));
        for garbled in ["", "12", "12,", "a,b", "-1,2", "12,34,5"] {
            assert_eq!(read(garbled), None, "{garbled}");
        }
    }
}
