//! One connection, as the shared steps use it.

use std::collections::BTreeSet;

use async_trait::async_trait;
use sqlx::SqliteConnection;

use super::{read, write};
use crate::clock::Clock;
use crate::store::sql::{Changed, Held, Lock, Session};
use crate::store::{NewRow, Noted, Stamped};
use crate::{Key, Kind, Task, TaskId, Timestamp};

/// A connection within a transaction, and the clock that goes with it. SQLite has one lock for all rows, so whoever
/// writes has every row locked.
pub(super) struct SqliteSession<'a> {
    connection: &'a mut SqliteConnection,
    clock: &'a Clock,
}

impl<'a> SqliteSession<'a> {
    pub(super) fn new(connection: &'a mut SqliteConnection, clock: &'a Clock) -> Self {
        Self { connection, clock }
    }
}

#[async_trait]
impl Session for SqliteSession<'_> {
    async fn now(&mut self) -> Result<Timestamp, sqlx::Error> {
        Ok(self.clock.now())
    }

    async fn rows_of_ids(&mut self, ids: BTreeSet<TaskId>, _: Lock) -> Result<Held, sqlx::Error> {
        read::held_by_ids(self.connection, ids).await
    }

    async fn rows_of_keys(&mut self, keys: BTreeSet<(Kind, Key)>, _: Lock) -> Result<Held, sqlx::Error> {
        let keys: Vec<_> = keys.into_iter().collect();
        read::held_by_keys(self.connection, &keys).await
    }

    async fn add(
        &mut self,
        rows: &[NewRow],
        now: Option<Timestamp>,
    ) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error> {
        let now = now.unwrap_or_else(|| self.clock.now());
        let found = write::add(self.connection, rows, now).await?;
        Ok(Stamped { now, found })
    }

    async fn write(&mut self, rows: &[Changed]) -> Result<u64, sqlx::Error> {
        write::write(self.connection, rows).await
    }

    async fn note(&mut self, rows: &[(TaskId, Noted)]) -> Result<(), sqlx::Error> {
        write::note(self.connection, rows).await
    }

    async fn refill(&mut self, row: &Task) -> Result<(), sqlx::Error> {
        write::refill(self.connection, row).await
    }
}
