//! What every way of keeping tasks can do.

use std::sync::Arc;
use std::time::Duration;

use super::Error;
use super::figure::Measured;
use super::ledger::{Ledger, ServerClock};

/// The kind of all tasks.
pub(crate) const KIND: &str = "bench";
pub(crate) const PAYLOAD: [u8; 100] = [b'x'; 100];
/// For how long after the last one is due tasks are waited for.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// One task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub(crate) number: usize,
    /// In ms since 1970, by the clock of the server.
    pub(crate) due: i64,
}

impl Item {
    /// Under which a caller knows it.
    pub(crate) fn key(self) -> String {
        key(self.number)
    }
}

pub(crate) fn key(number: usize) -> String {
    format!("{number:010}")
}

/// The number of a key.
pub(crate) fn number(key: &str) -> Option<usize> {
    key.parse().ok()
}

/// What is done with tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Add,
    Cancel,
    /// To the times that the items say.
    Move,
}

/// How many tasks are waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pending {
    /// That are due within [`SOON`].
    pub(crate) soon: usize,
    /// In all; a library may count no further than to its limit.
    pub(crate) all: usize,
}

/// Between the time at which tasks are due at first and the one to which they are moved, in ms from now.
pub(crate) const SOON: i64 = 5_400_000;

/// One way of keeping tasks, which has nothing in it at first.
pub(crate) trait Side: Clone + Send + Sync + Sized + 'static {
    /// Does something with these tasks in one call; gives with how many of them it was done.
    fn apply(&self, verb: Verb, items: &[Item]) -> impl Future<Output = Result<usize, Error>> + Send;

    /// Starts tasks at their time and ends them, until all have ended or patience is over; gives how many did.
    fn drain(&self, ledger: &Arc<Ledger>) -> impl Future<Output = Result<usize, Error>> + Send;

    /// How many are waiting.
    fn pending(&self) -> impl Future<Output = Result<Pending, Error>> + Send;

    /// The clock by which tasks are due.
    fn clock(&self) -> impl Future<Output = Result<ServerClock, Error>> + Send;

    /// Lets go of the server; what was kept there is removed by the place.
    fn close(self) -> impl Future<Output = Result<(), Error>> + Send;
}

/// Where tasks can be kept: a server of the user's, in which each side has names of its own.
pub(crate) trait Place {
    /// The least work for the same effect.
    type Limit: Side;
    /// The library.
    type Ours: Side;

    /// For people and in JSON.
    fn name(&self) -> &'static str;

    /// Whether the aims are those of Redis.
    fn is_redis(&self) -> bool {
        false
    }

    async fn limit(&self) -> Result<Self::Limit, Error>;

    async fn ours(&self) -> Result<Self::Ours, Error>;

    /// The version of the server, as it says.
    async fn version(&self) -> Result<String, Error>;

    /// W4 of the limit.
    async fn memory_of_limit(&self, _tasks: usize) -> Result<Vec<Measured>, Error> {
        Err("only Redis keeps tasks in memory".into())
    }

    /// W4 of the library.
    async fn memory(&self, _tasks: usize) -> Result<Vec<Measured>, Error> {
        Err("only Redis keeps tasks in memory".into())
    }

    /// W5 of the library.
    async fn idle(&self, tasks: usize) -> Result<Vec<Measured>, Error>;

    /// Has the server do what it would otherwise do beside the measurement, after many rows were written.
    async fn settle(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Removes everything that this run has made.
    async fn clean(&self) -> Result<(), Error>;
}
