//! One connection, as the shared steps use it.

use std::collections::BTreeSet;

use async_trait::async_trait;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row};
use uuid::Uuid;

use super::connections::Database;
use super::{codec, read};
use crate::store::sql::{Changed, Session};
use crate::store::{NewRow, Stamped};
use crate::timestamp::millis;
use crate::{Key, Kind, Task, TaskId, Timestamp, When, defaults};

/// A connection, within a transaction unless it is said to be alone.
pub(super) struct PostgresSession<'a> {
    pub(super) connection: &'a mut PgConnection,
    pub(super) database: &'a Database,
    /// Each step is a transaction of its own, which may be repeated.
    pub(super) is_alone: bool,
}

impl PostgresSession<'_> {
    /// Tells the listeners, when the transaction commits, if one of these rows is due soon.
    pub(super) async fn notify<'t>(
        &mut self,
        now: Timestamp,
        mut scheduled: impl Iterator<Item = &'t Task>,
    ) -> Result<(), sqlx::Error> {
        let Some(channel) = &self.database.channel else {
            return Ok(());
        };
        let soon = now.after(defaults::LOOK_AHEAD);
        if scheduled.any(|task| task.due_at <= soon) {
            let notify = sqlx::query(self.database.statements.notify.clone()).bind(channel);
            notify.execute(&mut *self.connection).await?;
        }
        Ok(())
    }

    /// Rows of a statement that holds them, read again if some have changed since it looked for them.
    async fn hold(
        &mut self,
        ask: impl Fn() -> Query<'static, Postgres, PgArguments>,
    ) -> Result<Vec<Task>, sqlx::Error> {
        loop {
            let rows = ask().fetch_all(&mut *self.connection).await?;
            let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
            // Each round, somebody else got on with a row.
            if first.try_get::<i64, _>(0)? > 0 {
                continue;
            }
            let filled = |row: &&PgRow| !matches!(row.try_get::<Option<Uuid>, _>(1), Ok(None));
            return rows
                .iter()
                .filter(filled)
                .map(|row| codec::task(row, 1))
                .collect();
        }
    }

    async fn add_once(
        &mut self,
        rows: &[&NewRow],
        now: Option<Timestamp>,
    ) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error> {
        let mut columns = Columns::default();
        for row in rows {
            columns.push(row)?;
        }
        let row = sqlx::query(self.database.statements.add.clone())
            .bind(now.map(Timestamp::as_millis))
            .bind(&self.database.channel)
            .bind(millis(defaults::LOOK_AHEAD))
            .bind(columns.ids)
            .bind(columns.kinds)
            .bind(columns.keys)
            .bind(columns.due_in)
            .bind(columns.due_at)
            .bind(columns.look_in)
            .bind(columns.max_attempts)
            .bind(columns.headers)
            .bind(columns.payloads)
            .fetch_one(&mut *self.connection)
            .await?;
        let now = Timestamp::from_millis(row.try_get(0)?);
        let found = match row.try_get::<Option<Vec<Uuid>>, _>(1)? {
            Some(some) => some.into_iter().map(TaskId::from).collect(),
            None => rows.iter().map(|row| row.id).collect(),
        };
        Ok(Stamped { now, found })
    }
}

#[async_trait]
impl Session for PostgresSession<'_> {
    async fn now(&mut self) -> Result<Timestamp, sqlx::Error> {
        read::time(self.connection, &self.database.statements).await
    }

    async fn rows_of_ids(&mut self, ids: BTreeSet<TaskId>) -> Result<Vec<Task>, sqlx::Error> {
        let statement = self.database.statements.hold_ids.clone();
        self.hold(|| read::by_ids(statement.clone(), ids.iter().copied()))
            .await
    }

    async fn rows_of_keys(&mut self, keys: BTreeSet<(Kind, Key)>) -> Result<Vec<Task>, sqlx::Error> {
        let statement = self.database.statements.hold_keys.clone();
        let pairs = || keys.iter().map(|(kind, key)| (kind, key));
        self.hold(|| read::by_keys(statement.clone(), pairs())).await
    }

    async fn add(
        &mut self,
        rows: &[NewRow],
        now: Option<Timestamp>,
    ) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error> {
        let mut rows: Vec<_> = rows.iter().collect();
        let ids: BTreeSet<_> = rows.iter().map(|row| row.id).collect();
        // In the order of their keys two batches that meet wait for one another, in any other they would end in a
        // deadlock. Of twins the first counts, so those of an id have to stay in their order.
        if ids.len() == rows.len() {
            rows.sort_by_key(|row| (&row.kind, &row.key));
        }
        if !self.is_alone {
            return self.add_once(&rows, now).await;
        }
        let mut retries = self.database.retries();
        loop {
            match self.add_once(&rows, now).await {
                Ok(added) => return Ok(added),
                Err(error) => retries.pause_after(error).await?,
            }
        }
    }

    async fn write(&mut self, rows: &[Changed]) -> Result<u64, sqlx::Error> {
        fn column<T>(rows: &[Changed], of: impl Fn(&Task) -> T) -> Vec<T> {
            rows.iter().map(|(_, row)| of(row)).collect()
        }
        let read_at = rows.iter().map(|(read_at, _)| codec::stored_version(*read_at));
        let error = |row: &Task| row.last_error.as_deref().map(codec::text);
        let query = sqlx::query(self.database.statements.write.clone())
            .bind(column(rows, |row| codec::uuid(row.id)))
            .bind(read_at.collect::<Vec<_>>())
            .bind(column(rows, |row| codec::number(row.state)))
            .bind(column(rows, |row| codec::stored_version(row.version)))
            .bind(column(rows, |row| row.due_at.as_millis()))
            .bind(column(rows, |row| row.planned_at.as_millis()))
            .bind(column(rows, |row| i64::from(row.attempt)))
            .bind(column(rows, |row| i64::from(row.hop)))
            .bind(column(rows, |row| row.updated_at.as_millis()))
            .bind(column(rows, |row| row.wake_at.map(Timestamp::as_millis)))
            .bind(column(rows, |row| row.finished_at.map(Timestamp::as_millis)))
            .bind(column(rows, error));
        Ok(query.execute(&mut *self.connection).await?.rows_affected())
    }

    async fn refill(&mut self, row: &Task) -> Result<(), sqlx::Error> {
        let query = sqlx::query(self.database.statements.refill.clone())
            .bind(codec::uuid(row.id))
            .bind(&row.payload)
            .bind(codec::headers(&row.headers)?)
            .bind(row.max_attempts.map(i64::from));
        query.execute(&mut *self.connection).await?;
        Ok(())
    }
}

/// New rows, column by column.
#[derive(Default)]
struct Columns<'r> {
    ids: Vec<Uuid>,
    kinds: Vec<&'r str>,
    keys: Vec<Option<&'r str>>,
    due_in: Vec<Option<i64>>,
    due_at: Vec<Option<i64>>,
    look_in: Vec<i64>,
    max_attempts: Vec<Option<i64>>,
    headers: Vec<String>,
    payloads: Vec<&'r [u8]>,
}

impl<'r> Columns<'r> {
    fn push(&mut self, row: &'r NewRow) -> Result<(), sqlx::Error> {
        let (due_in, due_at) = match row.due {
            When::After(delay) => (Some(codec::span(delay)), None),
            When::At(time) => (None, Some(time.as_millis())),
        };
        self.ids.push(codec::uuid(row.id));
        self.kinds.push(row.kind.as_str());
        self.keys.push(row.key.as_ref().map(Key::as_str));
        self.due_in.push(due_in);
        self.due_at.push(due_at);
        self.look_in.push(codec::span(row.look_in));
        self.max_attempts.push(row.max_attempts.map(i64::from));
        self.headers.push(codec::headers(&row.headers)?);
        self.payloads.push(&row.payload);
        Ok(())
    }
}
