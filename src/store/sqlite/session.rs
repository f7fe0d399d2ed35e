//! On which connections statements go: those of the store, one of which writes and a few read, or that of a service's
//! transaction.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr, SqliteConnection};
use tokio::sync::Mutex;

use super::connections::{classify, failed, leaves_reader};
use super::runner::Runner;
use super::{File, NAME, schema, statements};
use crate::clock::Clock;
use crate::store::sql::{Answered, Cells, Driver, Query, RowError, Session, Value, codec, time};
use crate::store::table::{Columns, Found, Outcome, Range, Unreadable, Which, Write};
use crate::store::{Claim, NewRow, Stamped};
use crate::{Error, Key, Kind, State, Timestamp};

/// What makes the last statement of a transaction durable.
const COMMIT: &str = "; COMMIT";

/// What both sessions say alike.
macro_rules! in_words_of_sqlite {
    () => {
        const NAME: &'static str = NAME;
        // A file has one writer: what comes while it writes is better off with all the others in the next call.
        const CALLS: usize = 1;

        fn failed(&self, error: sqlx::Error) -> Error {
            failed(error)
        }

        fn statement(&self, query: Query) -> SqlStr {
            AssertSqlSafe(statements::query(query)).into_sql_str()
        }

        fn keys(&self, keys: &[(Kind, Key)]) -> Result<Vec<Value>, sqlx::Error> {
            let keys = Value::Text(codec::json(keys)?);
            Ok(vec![keys.clone(), keys])
        }
    };
}

/// The connections of a store.
#[derive(Clone)]
pub(super) struct OwnSession(pub(super) Arc<File>);

/// Reads on a connection that is lent and given back, at a time that is taken before: gives what it read, and the time.
macro_rules! reading {
    ($own:expr, |$runner:ident| $read:expr) => {{
        let mut lent = $own.0.readers.lend().await?;
        let now = $own.0.clock.now();
        let mut $runner = Runner::new(&mut lent, now);
        let found = $read.await;
        if leaves_reader(&found) {
            lent.give_back();
        }
        let found = found?;
        Stamped { now, found }
    }};
}

#[async_trait]
impl Session for OwnSession {
    in_words_of_sqlite!();

    fn classify(&self, error: &sqlx::Error) -> Option<RowError> {
        classify(error)
    }

    async fn fetch(&self, sql: SqlStr, values: Vec<Value>) -> Result<Vec<Cells>, sqlx::Error> {
        let mut lent = self.0.readers.lend().await?;
        let rows = lent.fetch(sql, &values).await;
        if leaves_reader(&rows) {
            lent.give_back();
        }
        rows
    }

    async fn now(&self) -> Result<Timestamp, sqlx::Error> {
        Ok(self.0.clock.now())
    }

    async fn ranges(&self, ranges: &[Range], columns: Columns) -> Answered<Vec<Found>> {
        Ok(reading!(self, |runner| runner.ranges(ranges, columns)))
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Answered<Vec<usize>> {
        Ok(reading!(self, |runner| runner.count(kind, state, spans, most)))
    }

    async fn insert(&self, rows: Vec<&NewRow>, now: Option<Timestamp>) -> Answered<Vec<Outcome>> {
        let mut writing = self.0.write().await?;
        let now = now.unwrap_or(writing.now);
        let mut runner = Runner::new(&mut writing, now).ending(COMMIT);
        let found = runner.insert(&rows).await?;
        writing.end()?;
        Ok(Stamped { now, found })
    }

    async fn write(&self, writes: Vec<&Write>) -> Result<Vec<Outcome>, sqlx::Error> {
        let mut writing = self.0.write().await?;
        let now = writing.now;
        let mut runner = Runner::new(&mut writing, now).ending(COMMIT);
        let came = runner.write(&writes).await?;
        writing.end()?;
        Ok(came)
    }

    async fn claim(&self, which: Which<'_>, claim: &Claim) -> Answered<Found> {
        // Looked for before the lock is asked for, which other calls may have: and where nothing is due, it is not.
        let Stamped { now, found } = reading!(self, |runner| runner.due(which, claim));
        if found.rows.is_empty() && found.unreadable.is_empty() {
            return Ok(Stamped { now, found });
        }
        let mut writing = self.0.write().await?;
        let now = writing.now;
        let found = Runner::new(&mut writing, now).claim(which, claim, found).await?;
        writing.commit().await?;
        Ok(Stamped { now, found })
    }

    async fn set_aside(&self, rows: &[Unreadable], pause: Duration) -> Result<(), sqlx::Error> {
        let mut writing = self.0.write().await?;
        let now = writing.now;
        Runner::new(&mut writing, now)
            .set_aside(rows, now.after(pause))
            .await?;
        writing.commit().await
    }

    async fn remove_past(&self, states: &[State], ids: Vec<String>) -> Result<u64, sqlx::Error> {
        let mut writing = self.0.write().await?;
        let values = [Value::Text(codec::json(&ids)?), time(writing.now)];
        let remove = AssertSqlSafe(statements::remove(states)).into_sql_str();
        let removed = writing.fetch(remove, &values).await?.len() as u64;
        writing.commit().await?;
        Ok(removed)
    }

    async fn check(&self) -> Result<(), sqlx::Error> {
        schema::check(&self.0).await
    }
}

/// The service's connection. SQLite has one lock for all rows, so a transaction that writes has every row locked.
pub(super) struct JoinedSession<'t> {
    connection: Mutex<&'t mut SqliteConnection>,
    clock: Clock,
}

impl<'t> JoinedSession<'t> {
    pub(super) fn new(connection: &'t mut SqliteConnection, clock: Clock) -> Self {
        let connection = Mutex::new(connection);
        Self { connection, clock }
    }
}

#[async_trait]
impl Session for JoinedSession<'_> {
    in_words_of_sqlite!();

    fn classify(&self, _: &sqlx::Error) -> Option<RowError> {
        None
    }

    async fn fetch(&self, sql: SqlStr, values: Vec<Value>) -> Result<Vec<Cells>, sqlx::Error> {
        self.connection.lock().await.fetch(sql, &values).await
    }

    async fn now(&self) -> Result<Timestamp, sqlx::Error> {
        Ok(self.clock.now())
    }

    async fn insert(&self, rows: Vec<&NewRow>, _: Option<Timestamp>) -> Answered<Vec<Outcome>> {
        let mut connection = self.connection.lock().await;
        let now = self.clock.now();
        let found = Runner::new(&mut connection, now).insert(&rows).await?;
        Ok(Stamped { now, found })
    }

    async fn write(&self, writes: Vec<&Write>) -> Result<Vec<Outcome>, sqlx::Error> {
        let mut connection = self.connection.lock().await;
        let mut runner = Runner::new(&mut connection, self.clock.now());
        runner.write(&writes).await
    }
}
