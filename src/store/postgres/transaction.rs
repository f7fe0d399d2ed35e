//! A transaction that the service has opened in the same database.

use async_trait::async_trait;
use sqlx::PgConnection;

use super::connections::failed;
use super::session::PostgresSession;
use super::{PostgresStore, read, settle, verbs};
use crate::store::sql::Insert;
use crate::store::{Change, Ending, NewRow, Settlement, Stamped, Transaction};
use crate::{Answer, Error, Scheduled, Target, Task, TaskId};

/// The service's connection, and the store that joins its transaction.
pub(super) struct Joined<'t> {
    store: &'t PostgresStore,
    connection: &'t mut PgConnection,
}

impl<'t> Joined<'t> {
    pub(super) fn new(store: &'t PostgresStore, connection: &'t mut PgConnection) -> Self {
        Self { store, connection }
    }

    fn session(&mut self) -> PostgresSession<'_> {
        PostgresSession {
            connection: self.connection,
            database: &self.store.database,
            is_alone: false,
        }
    }
}

#[async_trait]
impl Transaction for Joined<'_> {
    async fn insert(&mut self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        let mut session = self.session();
        let insert = Insert::add(&mut session, rows).await.map_err(failed)?;
        verbs::rest(&mut session, &insert).await.map_err(failed)
    }

    async fn change(&mut self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        let history = self.store.history;
        let answers = verbs::within(&mut self.session(), &changes, history).await;
        answers.map_err(failed)
    }

    async fn find(&mut self, target: &Target) -> Result<Option<Task>, Error> {
        let statements = &self.store.database.statements;
        let found = read::of_target(self.connection, statements, target).await;
        found.map_err(failed)
    }

    async fn finish(&mut self, id: TaskId, version: u64) -> Result<bool, Error> {
        let done = Settlement {
            id,
            version,
            ending: Ending::Done,
        };
        let statements = &self.store.database.statements;
        let settled = settle::end(self.connection, statements, &[done], self.store.history).await;
        Ok(settled.map_err(failed)? == [true])
    }
}
