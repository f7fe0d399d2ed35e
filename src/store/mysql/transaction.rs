//! A transaction that the service has opened in the same database.

use async_trait::async_trait;
use sqlx::MySqlConnection;

use super::errors::failed;
use super::session::{MySqlSession, Within};
use super::{MySqlStore, read, settle};
use crate::store::sql::{self, Insert};
use crate::store::{Change, Ending, NewRow, Settlement, Stamped, Transaction};
use crate::{Answer, Error, Scheduled, Target, Task, TaskId};

/// The service's connection, and the store that joins its transaction.
pub(super) struct Joined<'t> {
    store: &'t MySqlStore,
    connection: &'t mut MySqlConnection,
}

impl<'t> Joined<'t> {
    pub(super) fn new(store: &'t MySqlStore, connection: &'t mut MySqlConnection) -> Self {
        Self { store, connection }
    }
}

#[async_trait]
impl Transaction for Joined<'_> {
    async fn insert(&mut self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        let server = &*self.store.server;
        let lent = server.connections.lend().await.map_err(failed)?;
        let mut session = MySqlSession {
            connection: self.connection,
            server,
            within: Within::Services(lent),
        };
        let insert = Insert::add(&mut session, rows).await.map_err(failed)?;
        let answers = insert.rest(&mut session).await.map_err(failed)?;
        session.give_back();
        Ok(answers)
    }

    async fn change(&mut self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        let server = &*self.store.server;
        let lent = server.connections.lend().await.map_err(failed)?;
        let mut session = MySqlSession {
            connection: self.connection,
            server,
            within: Within::Services(lent),
        };
        let answers = sql::change(&mut session, &changes, self.store.history).await;
        let answers = answers.map_err(failed)?;
        session.give_back();
        Ok(answers)
    }

    async fn find(&mut self, target: &Target) -> Result<Option<Task>, Error> {
        let found = read::of_target(self.connection, &self.store.server.sql, target).await;
        found.map_err(failed)
    }

    async fn finish(&mut self, id: TaskId, version: u64) -> Result<bool, Error> {
        let done = Settlement {
            id,
            version,
            ending: Ending::Done,
        };
        self.settle(done).await.map_err(failed)
    }
}

impl Joined<'_> {
    async fn settle(&mut self, settlement: Settlement) -> Result<bool, sqlx::Error> {
        let sql = &self.store.server.sql;
        let rows = read::by_ids(self.connection, &sql.lean_locked, [settlement.id])
            .await?
            .rows;
        let now = read::now(self.connection, sql).await?;
        let history = self.store.history;
        let settled = settle::end(self.connection, sql, rows, vec![settlement], now, history).await?;
        Ok(settled == [true])
    }
}
