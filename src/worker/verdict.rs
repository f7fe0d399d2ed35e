//! From what came of an attempt to how its claim ends.

use std::time::Duration;

use crate::retry::Policy;
use crate::scheduler::Parts;
use crate::store::Ending;
use crate::timestamp::{duration, millis};
use crate::{Failure, Outcome, Task, Timestamp};

/// What came of a claim.
pub(crate) enum Verdict {
    /// The handler answered.
    Answered(Result<Outcome, Failure>),
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
            "given up: {} workers in a row that held it went away (max_stalls)",
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
    pub(crate) fn ending(self, task: &Task, policy: &Policy, now: Timestamp, parts: &Parts) -> Ending {
        let look_in = |after| parts.router.look_in(Some(&task.kind), after);
        let reason = match self {
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
            Self::Answered(Ok(Outcome::Snooze(after))) => {
                return Ending::Snooze {
                    after,
                    look_in: look_in(after),
                };
            }
            Self::Answered(Ok(Outcome::Again(after))) => {
                return Ending::Again {
                    after,
                    look_in: look_in(after),
                };
            }
            Self::Answered(Ok(Outcome::Retry(reason))) => reason,
            Self::Answered(Err(failure)) => failure.reason(),
            Self::NotCommitted => "the transaction in which it was finished was not committed".to_owned(),
            Self::TimedOut => format!(
                "stopped after {:?}, its execution timeout",
                policy.execution_timeout
            ),
            Self::Panicked(text) => format!("panicked: {text}"),
        };
        let error = shortened(reason);
        let limit = task.max_attempts.unwrap_or(policy.max_attempts);
        if task.attempt >= limit {
            return Ending::Dead {
                error,
                give_back: false,
            };
        }
        let after = policy.pause(task.attempt, &parts.clock);
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
            look_in: look_in(after),
            error,
        }
    }
}

/// The longest error text that a row keeps, in bytes: whole error chains fit, a dumped response does not.
const LONGEST_ERROR: usize = 2_000;

fn shortened(mut text: String) -> String {
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

/// The due time that an ending gives a task that is scheduled again, from now; none if it is not, or keeps its own.
pub(crate) fn next_after(ending: &Ending, now: Timestamp) -> Option<Duration> {
    match ending {
        Ending::Retry { after, .. } | Ending::Snooze { after, .. } | Ending::Again { after, .. } => {
            Some(*after)
        }
        Ending::Moved { due, .. } => Some(duration(due.millis_since(now))),
        Ending::Done | Ending::Dead { .. } | Ending::Release | Ending::Cancelled => None,
    }
}

/// How long before `deadline` after the planned time; negative if it has passed.
fn left(task: &Task, deadline: Duration, now: Timestamp) -> i64 {
    task.planned_at.shifted(millis(deadline)).millis_since(now)
}
