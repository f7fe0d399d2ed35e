//! Executes statements: on connections of the store's own, or within a transaction that a service has opened.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{PgConnection, SqlStr};
use tokio::sync::Mutex;

use super::connections::Database;
use super::sql::IS_CHANGED;
use super::{driver, errors};
use crate::store::sql::{Cells, Value};

/// Executes statements on some connection.
#[async_trait]
pub(super) trait Executor: Send + Sync {
    /// Whether locks last until a service's transaction ends, which an error ends as well.
    const IS_JOINED: bool;

    fn database(&self) -> &Database;

    /// Which channel is told of rows that are due soon, if one is.
    fn channel(&self) -> Option<&str> {
        self.database().channel.as_deref()
    }

    /// What a statement finds.
    async fn fetch(&self, sql: &SqlStr, values: &[Value]) -> Result<Vec<Cells>, sqlx::Error>;

    /// What a statement finds that locks rows; the last column of each tells whether it has locked one that it did not mean.
    async fn held(&self, sql: &SqlStr, values: &[Value]) -> Result<Vec<Cells>, sqlx::Error> {
        self.fetch(sql, values).await
    }
}

/// The store's own connections: each statement is a transaction.
#[derive(Clone)]
pub(super) struct OwnExecutor {
    database: Arc<Database>,
    /// Whether it is for workers; else it is for callers.
    is_workers: bool,
}

impl OwnExecutor {
    pub(super) fn new(database: &Arc<Database>, is_workers: bool) -> Self {
        let database = Arc::clone(database);
        Self { database, is_workers }
    }
}

#[async_trait]
impl Executor for OwnExecutor {
    const IS_JOINED: bool = false;

    fn database(&self) -> &Database {
        &self.database
    }

    /// Of what workers write no channel is told: they move rows to later, and the sweeps of others find those in time.
    fn channel(&self) -> Option<&str> {
        self.database.channel.as_deref().filter(|_| !self.is_workers)
    }

    async fn fetch(&self, sql: &SqlStr, values: &[Value]) -> Result<Vec<Cells>, sqlx::Error> {
        let Database {
            pools, is_prepared, ..
        } = &*self.database;
        let fetch = || async {
            let pool = pools.of(self.is_workers);
            // In a session that is shared each statement is within a transaction that makes its own settings.
            let mut lent = match is_prepared {
                true => pool.lend().await?,
                false => pool.begin().await?,
            };
            let rows = driver::fetch(&mut lent, sql.clone(), values, *is_prepared).await;
            // A row that is in the way says nothing of the connection.
            let is_of_row = |error| errors::classify(error).is_some();
            match rows.as_ref().err().is_none_or(is_of_row) {
                true if *is_prepared => lent.give_back(),
                true => lent.commit().await?,
                false => {}
            }
            rows
        };
        pools.retried(errors::is_conflict, fetch).await
    }
}

/// A transaction that the service has opened on a connection of its own.
pub(super) struct JoinedExecutor<'t> {
    database: &'t Database,
    connection: Mutex<&'t mut PgConnection>,
}

impl<'t> JoinedExecutor<'t> {
    pub(super) fn new(database: &'t Database, connection: &'t mut PgConnection) -> Self {
        let connection = Mutex::new(connection);
        Self { database, connection }
    }

    async fn mark(&self, mark: &'static str) -> Result<(), sqlx::Error> {
        let mut connection = self.connection.lock().await;
        sqlx::raw_sql(mark).execute(&mut **connection).await.map(drop)
    }
}

#[async_trait]
impl Executor for JoinedExecutor<'_> {
    const IS_JOINED: bool = true;

    fn database(&self) -> &Database {
        self.database
    }

    async fn fetch(&self, sql: &SqlStr, values: &[Value]) -> Result<Vec<Cells>, sqlx::Error> {
        let mut connection = self.connection.lock().await;
        driver::fetch(&mut connection, sql.clone(), values, self.database.is_prepared).await
    }

    /// What was changed before it was locked may be another's to keep, such as a claim: so it is let go of, by a savepoint, and
    /// all are looked at again.
    async fn held(&self, sql: &SqlStr, values: &[Value]) -> Result<Vec<Cells>, sqlx::Error> {
        loop {
            self.mark("SAVEPOINT delayline").await?;
            let rows = self.fetch(sql, values).await?;
            if rows.first().and_then(|row| row.get(IS_CHANGED)) != Some(&Value::Int(1)) {
                self.mark("RELEASE SAVEPOINT delayline").await?;
                return Ok(rows);
            }
            self.mark("ROLLBACK TO SAVEPOINT delayline; RELEASE SAVEPOINT delayline")
                .await?;
        }
    }
}
