//! What is left to do once a transaction of the service's own has committed.

use crate::Error;
use crate::task::due_wake::DueWake;
use crate::task::wake::Wake;

/// The answer of a verb within a transaction, and the wake-ups that follow from it: given to
/// [`Scheduler::committed`](crate::Scheduler::committed) after the commit, and dropped after a rollback.
///
/// Dropping it after a commit loses nothing: the sweep finds the task, up to half a second late.
#[derive(Debug)]
#[must_use = "after the commit it is given to `Scheduler::committed`, so that the wake-up goes out at once"]
pub struct Receipt<A> {
    answer: A,
    follow: Follow,
}

impl<A> Receipt<A> {
    pub(crate) fn new(answer: A, follow: Follow) -> Self {
        Self { answer, follow }
    }

    /// The answer: true if the transaction commits.
    pub fn answer(&self) -> &A {
        &self.answer
    }

    pub(crate) fn try_map<B>(self, map: impl FnOnce(A) -> Result<B, Error>) -> Result<Receipt<B>, Error> {
        Ok(Receipt::new(map(self.answer)?, self.follow))
    }

    pub(crate) fn into_parts(self) -> (A, Follow) {
        (self.answer, self.follow)
    }
}

/// The wake-ups that follow from a verb.
#[derive(Debug, Default)]
pub(crate) struct Follow {
    /// To be sent.
    pub(crate) due_wakes: Vec<DueWake>,
    /// Of no use any more.
    pub(crate) obsolete: Vec<Wake>,
}
