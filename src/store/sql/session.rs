//! A connection, as the shared steps use it.

use std::collections::BTreeSet;

use async_trait::async_trait;

use crate::store::{NewRow, Stamped};
use crate::{Key, Kind, Task, TaskId, Timestamp};

/// A row and the version that it had when it was read.
pub(in crate::store) type Changed = (u64, Task);

/// What the shared steps need of one connection, within a transaction or each step by itself.
#[async_trait]
pub(in crate::store) trait Session: Send {
    /// The time by the database's clock, now and not when the transaction began.
    async fn now(&mut self) -> Result<Timestamp, sqlx::Error>;

    /// The rows of these ids. Those that a verb may change, scheduled and dead ones, are locked against everybody else
    /// until the transaction ends; those that run are not, as their worker must be able to renew their lease.
    async fn rows_of_ids(&mut self, ids: BTreeSet<TaskId>) -> Result<Vec<Task>, sqlx::Error>;

    /// The live and the newest rows of these kinds and keys, locked as [`rows_of_ids`](Self::rows_of_ids) locks.
    async fn rows_of_keys(&mut self, keys: BTreeSet<(Kind, Key)>) -> Result<Vec<Task>, sqlx::Error>;

    /// Writes new rows as [`row::new`](crate::store::row::new) makes them, at `now` or else at the time of the statement;
    /// leaves out each whose id, or live key, is there or comes earlier in the batch. Says which it wrote, and the time.
    ///
    /// It waits for another transaction that has just written the same id or live key, and has not ended.
    async fn add(
        &mut self,
        rows: &[NewRow],
        now: Option<Timestamp>,
    ) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error>;

    /// Writes what a transition has made of rows, each if it still has the version that it was read at; not their
    /// payload, headers and limit, which [`refill`](Self::refill) does. Says how many it wrote.
    async fn write(&mut self, rows: &[Changed]) -> Result<u64, sqlx::Error>;

    /// Gives a row that is locked its new payload, headers and limit.
    async fn refill(&mut self, row: &Task) -> Result<(), sqlx::Error>;
}
