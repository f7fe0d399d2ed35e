//! The table as a transaction of the service's own has it.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::SqliteConnection;
use tokio::sync::Mutex;

use super::NAME;
use super::connections::failed;
use super::table::keep;
use crate::clock::Clock;
use crate::store::table::{Columns, Found, Outcome, Range, Table, Write};
use crate::store::{NewRow, Noted, Stamped};
use crate::{Error, Key, Kind, State, TaskId, Timestamp};

/// The service's connection. SQLite has one lock for all rows, so whoever writes has every row locked.
pub(super) struct JoinedTable<'t> {
    connection: Mutex<&'t mut SqliteConnection>,
    clock: Clock,
}

impl<'t> JoinedTable<'t> {
    pub(super) fn new(connection: &'t mut SqliteConnection, clock: Clock) -> Self {
        let connection = Mutex::new(connection);
        Self { connection, clock }
    }
}

#[async_trait]
impl Table for JoinedTable<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        Ok(self.clock.now())
    }

    async fn read(
        &self,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
        columns: Columns,
    ) -> Result<Stamped<Found>, Error> {
        let mut connection = self.connection.lock().await;
        let now = self.clock.now();
        let found = keep(&mut connection, now).read(ids, keys, columns).await;
        Ok(Stamped {
            now,
            found: found.map_err(failed)?,
        })
    }

    async fn range(&self, ranges: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        let mut connection = self.connection.lock().await;
        let now = self.clock.now();
        let mut found = Vec::with_capacity(ranges.len());
        for range in ranges {
            let rows = keep(&mut connection, now).range(range, columns).await;
            found.push(rows.map_err(failed)?);
        }
        Ok(Stamped { now, found })
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let mut connection = self.connection.lock().await;
        let now = self.clock.now();
        let counts = keep(&mut connection, now).count(kind, state, spans, most).await;
        Ok(Stamped {
            now,
            found: counts.map_err(failed)?,
        })
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        let mut connection = self.connection.lock().await;
        let now = self.clock.now();
        let found = keep(&mut connection, now).insert(rows).await;
        Ok(Stamped {
            now,
            found: found.map_err(failed)?,
        })
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        let mut connection = self.connection.lock().await;
        let writes: Vec<_> = writes.iter().collect();
        let now = self.clock.now();
        keep(&mut connection, now).write(&writes).await.map_err(failed)
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error> {
        let mut connection = self.connection.lock().await;
        let mut keep = keep(&mut connection, self.clock.now());
        let past = keep.past(states, limit).await.map_err(failed)?;
        keep.remove(states, &past).await.map_err(failed)
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        let mut connection = self.connection.lock().await;
        let now = self.clock.now();
        keep(&mut connection, now)
            .kinds(state, after, limit)
            .await
            .map_err(failed)
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        let mut connection = self.connection.lock().await;
        let now = self.clock.now();
        keep(&mut connection, now).history(id).await.map_err(failed)
    }
}
