//! Whose connection a statement goes on: one of the store's own, or that of a service's transaction.

use std::sync::Arc;

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row, SqlStr};
use tokio::sync::Mutex;

use super::codec::Query;
use super::connections::{Database, Pool, Using};
use super::errors;
use super::sql::COLUMNS;
use crate::store::sql::Blame;

/// Makes a statement, each time that it is sent.
pub(super) type Make<'m, 'q> = &'m (dyn Fn() -> Query<'q> + Sync);

/// Sends statements.
#[async_trait]
pub(super) trait Session: Send + Sync {
    fn database(&self) -> &Database;

    /// Who is told of rows that are due soon; none: nobody.
    fn channel(&self) -> Option<&str> {
        self.database().channel.as_deref()
    }

    /// What a statement finds.
    async fn rows(&self, make: Make<'_, '_>) -> Result<Vec<PgRow>, sqlx::Error>;

    /// What a statement finds that locks rows; the last column of each tells whether it has locked one that it did not mean.
    async fn held(&self, make: Make<'_, '_>) -> Result<Vec<PgRow>, sqlx::Error>;

    /// Whether locks last until somebody else's transaction ends, which an error ends as well.
    fn is_joined(&self) -> bool;

    /// Which row a statement has failed of, if it can go on without it.
    fn blame(&self, error: &sqlx::Error) -> Option<Blame> {
        errors::blame(error).filter(|_| !self.is_joined())
    }

    /// By which statement rows are written: nobody waits here, but in a transaction of his own.
    fn write(&self) -> &SqlStr {
        match self.is_joined() {
            false => &self.database().statements.write,
            true => &self.database().statements.write_held,
        }
    }
}

/// The store's own connections: each statement is a transaction.
#[derive(Clone)]
pub(super) struct Own {
    database: Arc<Database>,
    /// Whether it is for workers; else it is for callers.
    is_workers: bool,
}

impl Own {
    pub(super) fn new(database: &Arc<Database>, is_workers: bool) -> Self {
        let database = Arc::clone(database);
        Self { database, is_workers }
    }

    fn pool(&self) -> &Pool {
        match self.is_workers {
            false => &self.database.callers,
            true => &self.database.workers,
        }
    }
}

#[async_trait]
impl Session for Own {
    fn database(&self) -> &Database {
        &self.database
    }

    /// What workers put off others find in time.
    fn channel(&self) -> Option<&str> {
        self.database.channel.as_deref().filter(|_| !self.is_workers)
    }

    async fn rows(&self, make: Make<'_, '_>) -> Result<Vec<PgRow>, sqlx::Error> {
        let fetch = || async {
            let mut using = Using::lend(self.pool()).await?;
            let query = make().persistent(self.database.is_prepared);
            let rows = query.fetch_all(&mut *using).await;
            // A row that is in the way says nothing of the connection.
            if rows
                .as_ref()
                .err()
                .is_none_or(|error| self.blame(error).is_some())
            {
                using.give_back().await?;
            }
            rows
        };
        self.database.retried(fetch).await
    }

    /// Nothing is to be locked.
    async fn held(&self, make: Make<'_, '_>) -> Result<Vec<PgRow>, sqlx::Error> {
        self.rows(make).await
    }

    fn is_joined(&self) -> bool {
        false
    }
}

/// A transaction that the service has opened on a connection of its own.
pub(super) struct Joined<'t> {
    database: &'t Database,
    connection: Mutex<&'t mut PgConnection>,
}

impl<'t> Joined<'t> {
    pub(super) fn new(database: &'t Database, connection: &'t mut PgConnection) -> Self {
        let connection = Mutex::new(connection);
        Self { database, connection }
    }
}

#[async_trait]
impl Session for Joined<'_> {
    fn database(&self) -> &Database {
        self.database
    }

    async fn rows(&self, make: Make<'_, '_>) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut connection = self.connection.lock().await;
        let query = make().persistent(self.database.is_prepared);
        query.fetch_all(&mut **connection).await
    }

    /// What was changed before it was locked may be another's to keep, such as a claim: so it is let go of, by a savepoint, and
    /// all are looked at again.
    async fn held(&self, make: Make<'_, '_>) -> Result<Vec<PgRow>, sqlx::Error> {
        loop {
            self.mark("SAVEPOINT delayline").await?;
            let rows = self.rows(make).await?;
            let is_changed = rows.first().map(|row| row.try_get(COLUMNS + 1)).transpose()?;
            if is_changed != Some(true) {
                self.mark("RELEASE SAVEPOINT delayline").await?;
                return Ok(rows);
            }
            self.mark("ROLLBACK TO SAVEPOINT delayline; RELEASE SAVEPOINT delayline")
                .await?;
        }
    }

    fn is_joined(&self) -> bool {
        true
    }
}

impl Joined<'_> {
    async fn mark(&self, mark: &'static str) -> Result<(), sqlx::Error> {
        let mut connection = self.connection.lock().await;
        sqlx::raw_sql(mark).execute(&mut **connection).await.map(drop)
    }
}
