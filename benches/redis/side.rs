//! What both sides can do.

use std::time::Duration;

use crate::Error;

/// Names a wake-up, as the id of a task does.
pub(crate) type Id = [u8; 16];

/// One way of having ids come when their time has come.
pub(crate) trait Side: Clone + Send + Sync + Sized + 'static {
    /// What a taken id is finished by.
    type Taken: Send + 'static;

    fn open(url: &str) -> impl Future<Output = Result<Self, Error>> + Send;

    /// Has ids come after a delay, all in one call.
    fn add(&self, ids: &[Id], delay: Duration) -> impl Future<Output = Result<(), Error>> + Send;

    /// Has each of these ids come after a delay of its own, all in one call.
    fn add_each(&self, ids: &[(Id, Duration)]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Has them come no more.
    fn cancel(&self, ids: &[Id]) -> impl Future<Output = Result<(), Error>> + Send;

    /// Has them come after another delay.
    fn reschedule(&self, ids: &[Id], delay: Duration) -> impl Future<Output = Result<(), Error>> + Send;

    /// Takes some that are due, when there are any.
    fn take(&self) -> impl Future<Output = Result<Vec<(Id, Self::Taken)>, Error>> + Send;

    /// Says that these are done with.
    fn finish(&self, taken: Vec<Self::Taken>) -> impl Future<Output = Result<(), Error>> + Send;
}
