//! How often, how long and how many at once: the policy of a kind.

use std::time::Duration;

use crate::clock::Clock;
use crate::{Error, defaults};

/// How tasks of one kind are run, tried again and given up.
///
/// Every setting has a default; see [`defaults`]. To go by other settings while a process runs, let another worker take the place
/// of the one that has these: see [`Worker::run_until_replaced`](crate::Worker::run_until_replaced).
///
/// ```
/// use std::time::Duration;
///
/// use delayline::store::MemoryStore;
/// use delayline::{Context, Failure, Outcome, Policy, Scheduler, Worker};
///
/// async fn charge(order: u64, _: Context) -> Result<Outcome, Failure> {
///     println!("charged order {order}");
///     Ok(Outcome::Done)
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let policy = Policy::new()
///     .max_attempts(5)
///     .backoff(Duration::from_secs(10), Duration::from_secs(600))
///     .deadline(Duration::from_secs(3600));
/// let scheduler = Scheduler::new(MemoryStore::new());
/// let worker = Worker::new(&scheduler).handle_with("order.charge", policy, charge);
/// # worker.run_until(std::future::ready(())).await.unwrap();
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    pub(crate) max_attempts: u32,
    pub(crate) max_stalls: u32,
    pub(crate) backoff_first: Duration,
    pub(crate) backoff_max: Duration,
    pub(crate) deadline: Option<Duration>,
    pub(crate) execution_timeout: Duration,
    pub(crate) concurrency: usize,
    pub(crate) prefetch: usize,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            max_attempts: defaults::MAX_ATTEMPTS,
            max_stalls: defaults::MAX_STALLS,
            backoff_first: defaults::BACKOFF_FIRST,
            backoff_max: defaults::BACKOFF_MAX,
            deadline: None,
            execution_timeout: defaults::EXECUTION_TIMEOUT,
            concurrency: defaults::CONCURRENCY,
            prefetch: defaults::PREFETCH,
        }
    }
}

impl Policy {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// After how many attempts a task is dead; at least 1. Default 25.
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = attempts;
        self
    }

    /// After how many claims in a row a task is dead that ended because their worker went away, or could not start it as an
    /// earlier handler of it blocks a thread there; at least 1. Default 100.
    ///
    /// A worker holds many tasks that it has not started, and when it dies that was no attempt of theirs. A task that
    /// kills its workers is started in full view of the store from the second time on, and so ends by its attempts; one
    /// that kills them before it is started ends by this.
    #[must_use]
    pub fn max_stalls(mut self, stalls: u32) -> Self {
        self.max_stalls = stalls;
        self
    }

    /// The pause after the first failed attempt, which doubles with every further one up to `max`; of each pause a
    /// random part is taken, so that tasks that failed together do not come back together. Default 1 s up to 1 h.
    #[must_use]
    pub fn backoff(mut self, first: Duration, max: Duration) -> Self {
        self.backoff_first = first;
        self.backoff_max = max;
        self
    }

    /// For how long after its planned time a task is of use: no attempt starts later, and it is dead instead.
    /// Default: for ever.
    #[must_use]
    pub fn deadline(mut self, deadline: Duration) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// For how long an attempt may run: then it is stopped at its next await, its lease is no longer renewed, and it
    /// has failed. Default 10 min.
    #[must_use]
    pub fn execution_timeout(mut self, timeout: Duration) -> Self {
        self.execution_timeout = timeout;
        self
    }

    /// How many handlers of this kind run at once in one worker; at least 1. Default 64.
    #[must_use]
    pub fn concurrency(mut self, handlers: usize) -> Self {
        self.concurrency = handlers;
        self
    }

    /// How many more tasks of this kind one worker claims in advance; 0 is allowed. Default 448.
    ///
    /// They wait in this worker even while others are idle: handlers that take long want few, or none.
    #[must_use]
    pub fn prefetch(mut self, tasks: usize) -> Self {
        self.prefetch = tasks;
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.max_attempts == 0 {
            return Err(Error::invalid("max_attempts", 0, "allowed is 1 or more"));
        }
        if self.max_stalls == 0 {
            return Err(Error::invalid("max_stalls", 0, "allowed is 1 or more"));
        }
        if self.concurrency == 0 {
            return Err(Error::invalid("concurrency", 0, "allowed is 1 or more"));
        }
        if self.execution_timeout.is_zero() {
            return Err(Error::invalid(
                "execution_timeout",
                "0s",
                "allowed is more than zero",
            ));
        }
        if self.backoff_first > self.backoff_max {
            return Err(Error::invalid(
                "backoff",
                format_args!("{:?} up to {:?}", self.backoff_first, self.backoff_max),
                "allowed is a first pause of at most the longest",
            ));
        }
        Ok(())
    }

    /// How many tasks of the kind one worker holds at the most.
    pub(crate) fn capacity(&self) -> usize {
        self.concurrency.saturating_add(self.prefetch)
    }

    /// The pause after failed attempt number `attempt` (from 1): a random part of the backoff then reached.
    pub(crate) fn pause(&self, attempt: u32, clock: &Clock) -> Duration {
        let doublings = attempt.saturating_sub(1).min(31);
        let reached = self
            .backoff_first
            .saturating_mul(1 << doublings)
            .min(self.backoff_max);
        let millis = u64::try_from(reached.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(clock.random_below(millis.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_the_longest_and_a_random_part_of_it_is_taken() {
        let clock = Clock::system();
        let policy = Policy::new().backoff(Duration::from_secs(1), Duration::from_secs(10));
        for (attempt, longest) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10), (u32::MAX, 10)] {
            let longest = Duration::from_secs(longest);
            let pauses: Vec<_> = (0..200).map(|_| policy.pause(attempt, &clock)).collect();
            assert!(
                pauses.iter().all(|&pause| pause <= longest),
                "attempt {attempt}: {pauses:?}"
            );
            // Of 200 draws all in the lower half: one run in 2^200.
            assert!(
                pauses.iter().any(|&pause| pause > longest / 2),
                "attempt {attempt}: {pauses:?}"
            );
        }
    }

    #[test]
    fn the_longest_pauses_there_are_do_not_overflow() {
        let clock = Clock::system();
        for longest in [Duration::MAX, Duration::from_millis(u64::MAX)] {
            let policy = Policy::new().backoff(longest, longest);
            policy.check().unwrap();
            assert!(policy.pause(u32::MAX, &clock) <= longest);
        }
    }

    #[test]
    fn a_policy_that_cannot_work_is_refused_by_name() {
        let second = Duration::from_secs(1);
        for (policy, field) in [
            (Policy::new().max_attempts(0), "max_attempts"),
            (Policy::new().max_stalls(0), "max_stalls"),
            (Policy::new().concurrency(0), "concurrency"),
            (
                Policy::new().execution_timeout(Duration::ZERO),
                "execution_timeout",
            ),
            (Policy::new().backoff(second * 2, second), "backoff"),
        ] {
            let error = policy.check().unwrap_err().to_string();
            assert!(error.starts_with(field), "{error}");
        }
    }
}
