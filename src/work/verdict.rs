//! From what came of an attempt to how its claim ends.

use std::time::Duration;

use tokio::time::Instant;
use tracing::error;

use crate::backend::Wake;
use crate::clock::instant_after;
use crate::schedule::kernel::Kernel;
use crate::store::Ending;
use crate::task::due_wake::DueWake;
use crate::task::timestamp::millis;
use crate::work::retry::Policy;
use crate::{Failure, Outcome, Task, Timestamp};

/// What came of a claim.
pub(crate) enum Verdict {
    /// The handler answered.
    Answered(Result<Outcome, Failure>),
    /// The attempt failed for this reason, and its claimant may say when the next is due.
    Failed {
        /// Why.
        reason: String,
        /// Due this long after now; else by the policy.
        after: Option<Duration>,
    },
    /// The handler says that it finished the task in a transaction: so this counts only if that was not committed.
    NotCommitted,
    /// The handler outlived its execution timeout and was stopped.
    TimedOut,
    /// The handler panicked, with this text.
    Panicked(String),
    /// The handler was not started, for this reason, and never will be.
    Refused(String),
    /// The handler was stopped because its worker stops; or because its claim was lost, and then nothing follows.
    Stopped,
}

/// Why a claimed task must not be started, if so.
pub(crate) fn refusal(task: &Task, policy: &Policy, now: Timestamp) -> Option<Verdict> {
    let limit = task.max_attempts.unwrap_or(policy.max_attempts);
    if task.attempt > limit {
        // Only a worker that died in the last attempt leaves a task like this.
        let last = task.last_error.as_deref().unwrap_or("its worker died");
        return Some(Verdict::Refused(format!(
            "given up after {limit} attempts; the last: {last}"
        )));
    }
    if task.stalls >= policy.max_stalls {
        return Some(Verdict::Refused(format!(
            "given up: {} claims in a row ended as their workers went away, or could not start it (max_stalls)",
            task.stalls
        )));
    }
    let deadline = policy.deadline?;
    (left(task, deadline, now) < 0).then(|| {
        Verdict::Refused(format!(
            "the deadline, {deadline:?} after its planned time, has passed"
        ))
    })
}

impl Verdict {
    /// How the claim ends.
    pub(crate) fn ending(self, task: &Task, policy: &Policy, now: Timestamp, kernel: &Kernel) -> Ending {
        let overdue_after = |after| kernel.router.overdue_after(Some(&task.kind), after);
        let snooze = |after, reason: Option<String>| Ending::Snooze {
            after,
            overdue_after: overdue_after(after),
            reason: reason.map(shortened),
        };
        let (reason, said) = match self {
            Self::Refused(error) => {
                return Ending::Dead {
                    error,
                    give_back: true,
                };
            }
            Self::Stopped => return Ending::Release,
            Self::Answered(Ok(Outcome::Done)) => return Ending::Done,
            Self::Answered(Ok(Outcome::Discard(error))) => {
                return Ending::Dead {
                    error: shortened(error),
                    give_back: false,
                };
            }
            Self::Answered(Ok(Outcome::Snooze(after))) => return snooze(after, None),
            Self::Answered(Ok(Outcome::SnoozeBecause(reason, after))) => return snooze(after, Some(reason)),
            Self::Answered(Ok(Outcome::Again(after))) => {
                return Ending::Again {
                    after,
                    overdue_after: overdue_after(after),
                };
            }
            Self::Failed { reason, after } => (reason, after),
            Self::Answered(Ok(Outcome::Retry(reason))) => (reason, None),
            Self::Answered(Ok(Outcome::RetryAfter(reason, wait))) => {
                // Not all at once then: many may have been told the same time.
                let pause = policy.pause(task.attempt, &kernel.clock);
                (reason, Some(wait.saturating_add(pause)))
            }
            Self::Answered(Err(failure)) => (failure.reason(), None),
            Self::NotCommitted => (
                "the transaction in which it was finished was not committed".to_owned(),
                None,
            ),
            Self::TimedOut => (
                format!(
                    "stopped after {:?}, its execution timeout",
                    policy.execution_timeout
                ),
                None,
            ),
            Self::Panicked(text) => (format!("panicked: {text}"), None),
        };
        let error = shortened(reason);
        let limit = task.max_attempts.unwrap_or(policy.max_attempts);
        if task.attempt >= limit {
            return Ending::Dead {
                error,
                give_back: false,
            };
        }
        let after = said.unwrap_or_else(|| policy.pause(task.attempt, &kernel.clock));
        if policy
            .deadline
            .is_some_and(|deadline| left(task, deadline, now) < millis(after))
        {
            let error = format!("no time for another attempt before the deadline; the last: {error}");
            return Ending::Dead {
                error,
                give_back: false,
            };
        }
        Ending::Retry {
            after,
            overdue_after: overdue_after(after),
            error,
        }
    }
}

/// The longest error text that a row keeps, in bytes: whole error chains fit, a dumped response does not.
const LONGEST_ERROR: usize = 2_000;

pub(crate) fn shortened(mut text: String) -> String {
    if text.len() > LONGEST_ERROR {
        let mut end = LONGEST_ERROR;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push('…');
    }
    text
}

/// The wake-up of a task whose claim has ended so, at `settled_at`; none if nothing is to come, or at once.
pub(crate) fn next_wake(
    task: &Task,
    ending: &Ending,
    now: Timestamp,
    settled_at: Instant,
) -> Option<DueWake> {
    let after = ending.next_after(now)?;
    let wake = Wake {
        id: task.id,
        kind: task.kind.clone(),
        version: task.version + 1,
    };
    Some(DueWake {
        wake,
        due: instant_after(settled_at, after),
    })
}

/// Tells people that a task is dead, after this attempt.
pub(crate) fn tell_dead(task: &Task, attempt: u32, reason: &str) {
    error!(
        id = %task.id, kind = %task.kind, key = task.key.as_ref().map(crate::Key::as_str), attempt, reason,
        "a task is dead"
    );
}

/// Whether the store has to know of a start before it happens: if the worker may die of it, or if there may be no other.
///
/// Of all others it learns by the first renewal: to tell it each time would be one more write for every task. What ends
/// before is settled, and where the worker dies before, the end of the lease gives the attempt back, once.
pub(crate) fn needs_note(task: &Task, policy: &Policy) -> bool {
    task.stalls > 0 || task.attempt >= task.max_attempts.unwrap_or(policy.max_attempts)
}

/// How long before `deadline` after the planned time; negative if it has passed.
fn left(task: &Task, deadline: Duration, now: Timestamp) -> i64 {
    task.planned_at.shifted(millis(deadline)).millis_since(now)
}
