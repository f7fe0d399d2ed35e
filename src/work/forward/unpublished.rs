//! Decides what becomes of a task whose message was not published.

use std::time::Duration;

use crate::rocketmq::PublishError;
use crate::task::timestamp::duration;
use crate::{Context, Failure, Outcome};

/// How long a task without a broker waits, as a part of how late it is.
const PART_OF_LATENESS: u32 = 4;
/// The shortest wait, and the longest.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// For how long after its due time a task waits for a broker. A missing topic cannot be distinguished from one whose
/// brokers are away, and some day the task must say so.
const GIVE_UP_AFTER: Duration = Duration::from_secs(24 * 3_600);

impl PublishError {
    /// Decides the outcome of the task whose handler publishes: a failed attempt, a wait, or a dead task.
    ///
    /// While no broker has the topic, the task uses up no attempt: it comes again after a quarter of the time that it
    /// is late, but 1 s at the least and 60 s at the most. So the absence of brokers costs a task no more than that
    /// beyond the absence itself, and meanwhile its `last_error` says what is missing. When the task is a day late, it
    /// counts as a failed attempt all the same.
    pub fn outcome(self, context: &Context) -> Result<Outcome, Failure> {
        match self {
            Self::Unreachable(error) => {
                let task = context.task();
                let started_at = context.due_at().after(context.lateness());
                match wait(duration(started_at.millis_since(task.planned_at))) {
                    Some(wait) => Ok(Outcome::SnoozeBecause(Failure::from(error).reason(), wait)),
                    None => Err(error.into()),
                }
            }
            Self::Failed(error) => Err(error.into()),
            Self::Rejected(reason) => Ok(Outcome::Discard(reason)),
        }
    }
}

/// Returns for how long a task that is so late waits for a broker; none: not any more.
fn wait(late: Duration) -> Option<Duration> {
    let (shortest, longest) = WAITS;
    (late < GIVE_UP_AFTER).then(|| (late / PART_OF_LATENESS).clamp(shortest, longest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_waits_the_longer_the_later_it_is_and_for_a_day_at_the_most() {
        for (late, waits) in [
            (0, Some(1)),
            (4, Some(1)),
            (20, Some(5)),
            (240, Some(60)),
            (86_399, Some(60)),
            (86_400, None),
        ] {
            let waits = waits.map(Duration::from_secs);
            assert_eq!(wait(Duration::from_secs(late)), waits, "{late} s late");
        }
    }
}
