//! A transaction that the service has opened in the same file.

use async_trait::async_trait;
use sqlx::SqliteConnection;

use super::connections::failed;
use super::session::SqliteSession;
use super::{SqliteStore, guarded, read};
use crate::store::{Change, Ending, Guarded, NewRow, Note, Stamped, Step, Target, Transaction, sql};
use crate::{Answer, Error, Scheduled, Task, TaskId};

/// The service's connection, and the store that joins its transaction.
pub(super) struct Joined<'t> {
    store: &'t SqliteStore,
    connection: &'t mut SqliteConnection,
}

impl<'t> Joined<'t> {
    pub(super) fn new(store: &'t SqliteStore, connection: &'t mut SqliteConnection) -> Self {
        Self { store, connection }
    }

    fn session(&mut self) -> SqliteSession<'_> {
        SqliteSession::new(self.connection, &self.store.file.clock)
    }
}

#[async_trait]
impl Transaction for Joined<'_> {
    async fn insert(&mut self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        let answers = sql::insert_at_once(&mut self.session(), rows).await;
        sql::all(answers.map_err(failed)?, super::NAME)
    }

    async fn change(&mut self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        let history = self.store.history;
        let answers = sql::change(&mut self.session(), &changes, history).await;
        sql::all(answers.map_err(failed)?, super::NAME)
    }

    async fn find(&mut self, target: &Target) -> Result<Option<Task>, Error> {
        let held = read::of_target(self.connection, target).await;
        let found = held.and_then(|held| read::meant(target, held));
        found.map_err(failed)
    }

    async fn finish(&mut self, id: TaskId, version: u64, note: Note) -> Result<bool, Error> {
        let now = self.store.file.clock.now();
        let done = Step::end(id, version, Ending::Done).noting(note);
        let came = guarded::take(self.connection, &[done], now, self.store.history).await;
        Ok(came.map_err(failed)? == [Guarded::Done])
    }
}
