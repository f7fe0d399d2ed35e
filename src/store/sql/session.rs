//! A connection, as the shared steps use it.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::obstacle::Obstacle;
use crate::store::{NewRow, Noted, Stamped};
use crate::{Key, Kind, Task, TaskId, Timestamp};

/// A row as it has become, and what it was like when it was read.
pub(in crate::store) type Changed = (Before, Task);

/// What a row was like: its version, and what most endings leave as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::store) struct Before {
    pub(in crate::store) version: u64,
    due_at: Timestamp,
    planned_at: Timestamp,
    attempt: u32,
    stalls: u32,
    hop: u32,
    last_error: Option<String>,
}

impl Before {
    pub(in crate::store) fn of(row: &Task) -> Self {
        Self {
            version: row.version,
            due_at: row.due_at,
            planned_at: row.planned_at,
            attempt: row.attempt,
            stalls: row.stalls,
            hop: row.hop,
            last_error: row.last_error.clone(),
        }
    }

    /// Whether only its state is new, by one transition, and when that was.
    #[cfg(feature = "mysql")]
    pub(in crate::store) fn has_only_ended(&self, row: &Task) -> bool {
        let ended = Self {
            version: self.version + 1,
            ..self.clone()
        };
        !row.state.is_live() && ended == Self::of(row)
    }
}

/// Rows that a batch of verbs may touch, and those that are in its way.
#[derive(Debug, Default)]
pub(in crate::store) struct Held {
    /// Locked against everybody else until the transaction ends.
    pub(in crate::store) locked: Vec<Task>,
    /// Only looked at: they run, or are finished for good.
    pub(in crate::store) seen: Vec<Task>,
    /// Of which nothing can be decided now.
    pub(in crate::store) obstacles: Vec<Obstacle>,
}

/// Which rows are to be locked. Those whose lease has ended are in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::store) enum Lock {
    /// Those that a verb may change: scheduled and dead ones.
    Changeable,
    /// No others: an answer is all that is wanted.
    Ended,
}

/// What the shared steps need of one connection, within a transaction or each step by itself.
#[async_trait]
pub(in crate::store) trait Session: Send {
    /// The time by the database's clock, now and not when the transaction began.
    async fn now(&mut self) -> Result<Timestamp, sqlx::Error>;

    /// The rows of these ids, of which some are locked. A row that runs is not unless its lease has ended, as its worker
    /// must be able to renew it.
    async fn rows_of_ids(&mut self, ids: BTreeSet<TaskId>, lock: Lock) -> Result<Held, sqlx::Error>;

    /// The live and the newest rows of these kinds and keys, locked in the same way. Each obstacle is said with the key
    /// that it is an obstacle for.
    async fn rows_of_keys(&mut self, keys: BTreeSet<(Kind, Key)>, lock: Lock) -> Result<Held, sqlx::Error>;

    /// Writes new rows as [`row::new`](crate::store::row::new) makes them, at `now` or else at the time of the statement;
    /// leaves out each whose id, or live key, is there or comes earlier in the batch. Says which it wrote, and the time.
    ///
    /// It waits, at most as long as its connection allows, for another transaction that has just written the same id or
    /// live key, and has not ended.
    async fn add(
        &mut self,
        rows: &[NewRow],
        now: Option<Timestamp>,
    ) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error>;

    /// Writes what a transition has made of rows, each if it still has the version that it was read at; not their
    /// payload, headers and limit, which [`refill`](Self::refill) does. Says how many it wrote.
    async fn write(&mut self, rows: &[Changed]) -> Result<u64, sqlx::Error>;

    /// Adds what was noted of rows that are locked to what they have.
    async fn note(&mut self, rows: &[(TaskId, Noted)]) -> Result<(), sqlx::Error>;

    /// Gives a row that is locked its new payload, headers and limit.
    async fn refill(&mut self, row: &Task) -> Result<(), sqlx::Error>;
}
