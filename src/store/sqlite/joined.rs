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

/// What a call on the service's connection gives, and when.
macro_rules! joined {
    ($table:expr, |$keep:ident| $call:expr) => {{
        let mut connection = $table.connection.lock().await;
        let now = $table.clock.now();
        let mut $keep = keep(&mut connection, now);
        let found = $call.await;
        found.map(|found| Stamped { now, found }).map_err(failed)
    }};
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
        joined!(self, |keep| keep.read(ids, keys, columns))
    }

    async fn range(&self, ranges: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        joined!(self, |keep| keep.ranges(ranges, columns))
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        joined!(self, |keep| keep.count(kind, state, spans, most))
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        joined!(self, |keep| keep.insert(rows))
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        let writes: Vec<_> = writes.iter().collect();
        let written = joined!(self, |keep| keep.write(&writes));
        Ok(written?.found)
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error> {
        let past = joined!(self, |keep| keep.past(states, limit))?.found;
        Ok(joined!(self, |keep| keep.remove(states, &past))?.found)
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        Ok(joined!(self, |keep| keep.kinds(state, after, limit))?.found)
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        Ok(joined!(self, |keep| keep.history(id))?.found)
    }
}
