//! What a service's own table says of its tasks.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::clock::panics::panic_text;
use crate::{Error, Failure, Key, Timestamp, defaults};

/// What a service's own table says of a task now, whatever was scheduled before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expected {
    /// It is to run at this time; at once, if that has passed. No task waits beyond [`Timestamp::MAX`].
    At(Timestamp),
    /// It is to run now.
    Run,
    /// It has no time yet: it waits until it has one, and is asked about as any other.
    NotYet,
    /// It is not to run, ever: it is cancelled. A time that the table has later makes no new task.
    Gone,
}

/// Asks a service's own table what its tasks of one kind are to do, so that they follow it.
///
/// For a service that has the truth in a column of its own, such as `posts.publish_at`: an `UPDATE` there is obeyed
/// without a call to this crate. A task is asked about at every arrival of its wake-up, hops included, and once more
/// when it is due and before its handler starts; and no wake-up of its kind is away for longer than
/// [`every`](Self::every). So a later time and a removal are seen in time, always, and an earlier time within that.
///
/// The table has the last word. A caller that reschedules or shifts a task, or makes it run now, changes the table too (else the
/// verb answers `Done`, and the task is moved back), and so does a handler that answers
/// [`Outcome::Again`](crate::Outcome::Again), before it answers; retries and snoozes keep their pauses as long as
/// the table says what it said. A task is known by its key, so each of such a kind needs one.
///
/// It follows tasks that are there: a new row of the table needs a [`schedule`](crate::Scheduler::schedule), and so does one
/// whose task is done, or was cancelled as [`Expected::Gone`]. Every process that schedules or runs such tasks names the check.
///
/// While the function fails no task of its kind is run, and it is asked again every second; the `last_error` of those that
/// are due says why.
///
/// ```
/// use std::sync::Arc;
///
/// use delayline::expected::{Check, Expected};
/// use delayline::{Error, Failure, Key, Scheduler, Timestamp, store::MemoryStore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let scheduler = Scheduler::builder(Arc::new(MemoryStore::new()))
///     .follow("post.publish", Check::new(publish_times))
///     .build()?;
/// # Ok(())
/// # }
///
/// async fn publish_times(posts: Vec<Key>) -> Result<Vec<Expected>, Failure> {
///     let mut answers = Vec::new();
///     for post in posts {
///         answers.push(match publish_at(&post).await? {
///             Some(time) => Expected::At(time),
///             None => Expected::NotYet,
///         });
///     }
///     Ok(answers)
/// }
///
/// // In truth: one SELECT of all of them.
/// async fn publish_at(post: &Key) -> Result<Option<Timestamp>, Failure> {
///     Ok(Some("2026-12-24T08:00:00+01:00".parse()?))
/// }
/// ```
#[derive(Clone)]
pub struct Check {
    ask: Ask,
    every: Duration,
}

type Answering = Pin<Box<dyn Future<Output = Result<Vec<Expected>, Failure>> + Send>>;

type Ask = Arc<dyn Fn(Vec<Key>) -> Answering + Send + Sync>;

impl Check {
    /// A check by `ask`, an async function of up to [`defaults::BATCH`] keys: one answer each, in their order.
    ///
    /// Another number of answers is an error; so is an answer that takes longer than a third of the worker's lease,
    /// or than [`defaults::CHECK_TIMEOUT`]. A worker asks for one batch of a kind at a time.
    pub fn new<F, A>(ask: F) -> Self
    where
        F: Fn(Vec<Key>) -> A + Send + Sync + 'static,
        A: Future<Output = Result<Vec<Expected>, Failure>> + Send + 'static,
    {
        Self {
            ask: Arc::new(move |keys| Box::pin(ask(keys))),
            every: defaults::CHECK_EVERY,
        }
    }

    /// For how long a wake-up is away at the most: how late an earlier time is noticed. 1 s up to 24 h; default
    /// [`defaults::CHECK_EVERY`].
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every;
        self
    }

    /// How often it is asked about a task at the least.
    pub(crate) fn period(&self) -> Duration {
        self.every
    }

    /// How far a wake-up of the kind may reach; an error if that is not allowed.
    pub(crate) fn reach(&self) -> Result<Duration, Error> {
        if (SHORTEST..=LONGEST).contains(&self.every) {
            return Ok(self.every);
        }
        Err(Error::invalid(
            "every",
            format_args!("{:?}", self.every),
            "allowed is 1 s or more, up to 24 h",
        ))
    }

    /// One answer for each of `keys`, or why there are none.
    pub(crate) async fn ask(
        &self,
        keys: Vec<Key>,
        clock: &Clock,
        limit: Duration,
    ) -> Result<Vec<Expected>, String> {
        let count = keys.len();
        let ask = Arc::clone(&self.ask);
        // A task of its own, so that a panic is an answer too; called inside, since it may panic before its first await.
        let mut asking = JoinSet::new();
        clock.spawn_in(&mut asking, async move { ask(keys).await });
        let answers = match clock.timeout(limit, asking.join_next()).await {
            Some(Some(Ok(Ok(answers)))) => answers,
            Some(Some(Ok(Err(failure)))) => return Err(failure.reason()),
            Some(Some(Err(panic))) => return Err(format!("panicked: {}", panic_text(panic))),
            Some(None) | None => return Err(format!("no answer within {limit:?}")),
        };
        if answers.len() != count {
            return Err(format!("{} answers for {count} keys", answers.len()));
        }
        Ok(answers)
    }
}

const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(24 * 3_600);

impl fmt::Debug for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Check")
            .field("every", &self.every)
            .finish_non_exhaustive()
    }
}

/// What follows for a task from what is expected of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckAction {
    /// Nothing: it is as expected.
    Keep,
    /// Another time.
    Move(Timestamp),
    /// It is due now.
    RunNow,
    /// It is cancelled.
    Cancel,
}

impl Expected {
    /// As late as a task can wait.
    const NEVER: Self = Self::At(Timestamp::MAX);

    /// The action for a task that is not due yet, and was planned for `planned_at`.
    ///
    /// The planned time is compared and not the due time: so a retry or a snooze keeps its pause.
    pub(crate) fn action_for_scheduled(self, planned_at: Timestamp, now: Timestamp) -> CheckAction {
        match self {
            Self::Gone => CheckAction::Cancel,
            Self::NotYet => Self::NEVER.action_for_scheduled(planned_at, now),
            Self::Run if planned_at > now => CheckAction::RunNow,
            Self::Run => CheckAction::Keep,
            Self::At(time) => {
                let time = time.min(Timestamp::MAX);
                // Its time has come, by both: what it waits for is a pause.
                let has_come = time <= now && planned_at <= now;
                if time == planned_at || has_come {
                    CheckAction::Keep
                } else {
                    CheckAction::Move(time)
                }
            }
        }
    }

    /// The action for a task that was claimed, and was planned for `planned_at`: `Keep` is to run it.
    pub(crate) fn action_for_claimed(self, planned_at: Timestamp, now: Timestamp) -> CheckAction {
        match self {
            Self::Gone => CheckAction::Cancel,
            Self::NotYet => Self::NEVER.action_for_claimed(planned_at, now),
            Self::At(time) if time > now && time != planned_at => CheckAction::Move(time.min(Timestamp::MAX)),
            Self::Run | Self::At(_) => CheckAction::Keep,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    fn at(millis: i64) -> Expected {
        Expected::At(Timestamp::from_millis(millis))
    }

    fn to(millis: i64) -> CheckAction {
        CheckAction::Move(Timestamp::from_millis(millis))
    }

    #[test]
    fn an_early_task_follows_unless_its_time_is_the_same_or_has_come_by_both() {
        for (expected, planned_at, action) in [
            (at(2_000), 2_000, CheckAction::Keep),
            (at(2_000), 3_000, to(2_000)),
            (at(3_000), 2_000, to(3_000)),
            // It waits for a retry.
            (at(900), 900, CheckAction::Keep),
            (at(800), 900, CheckAction::Keep),
            (at(1_000), 1_000, CheckAction::Keep),
            (at(1_001), 900, to(1_001)),
            (at(1_000), 1_001, to(1_000)),
            (Expected::Run, 1_001, CheckAction::RunNow),
            (Expected::Run, 1_000, CheckAction::Keep),
            (Expected::Gone, 2_000, CheckAction::Cancel),
            (Expected::Gone, 900, CheckAction::Cancel),
            (Expected::NotYet, 2_000, to(Timestamp::MAX.as_millis())),
            (Expected::NotYet, Timestamp::MAX.as_millis(), CheckAction::Keep),
        ] {
            let planned_at = Timestamp::from_millis(planned_at);
            assert_eq!(
                expected.action_for_scheduled(planned_at, NOW),
                action,
                "{expected:?} {planned_at:?}"
            );
        }
    }

    #[test]
    fn a_claimed_task_runs_unless_a_later_time_is_said_or_none() {
        for (expected, planned_at, action) in [
            (at(900), 900, CheckAction::Keep),
            (at(1_000), 900, CheckAction::Keep),
            (at(1_001), 900, to(1_001)),
            (at(1_001), 1_001, CheckAction::Keep),
            (Expected::Run, 900, CheckAction::Keep),
            (Expected::Gone, 900, CheckAction::Cancel),
            (Expected::NotYet, 900, to(Timestamp::MAX.as_millis())),
        ] {
            let planned_at = Timestamp::from_millis(planned_at);
            assert_eq!(
                expected.action_for_claimed(planned_at, NOW),
                action,
                "{expected:?} {planned_at:?}"
            );
        }
    }

    #[test]
    fn a_time_beyond_the_last_is_the_last() {
        let beyond = at(i64::MAX);
        assert_eq!(
            beyond.action_for_scheduled(NOW, NOW),
            CheckAction::Move(Timestamp::MAX)
        );
        assert_eq!(
            beyond.action_for_scheduled(Timestamp::MAX, NOW),
            CheckAction::Keep
        );
        assert_eq!(
            beyond.action_for_claimed(NOW, NOW),
            CheckAction::Move(Timestamp::MAX)
        );
    }
}
