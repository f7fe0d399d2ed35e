//! A transaction that the service has opened in the same database.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::PgConnection;

use super::errors::failed;
use super::session::{PostgresSession, Whose};
use super::verbs::{change_within, insert_within};
use super::{PostgresStore, guarded, read};
use crate::store::sql::{self, Verbs, Why};
use crate::store::{Change, Ending, Guarded, NewRow, Note, Stamped, Step, Target, Transaction};
use crate::{Answer, Error, Scheduled, Task, TaskId};

/// How often a claim is asked to be finished whose row somebody else has locked, and for how long in between.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

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
        PostgresSession::new(self.connection, &self.store.database, Whose::Services)
    }
}

#[async_trait]
impl Transaction for Joined<'_> {
    async fn insert(&mut self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        if let Some(why) = rows.iter().find_map(<super::Database as Verbs>::refuses) {
            return Err(why.error(super::NAME));
        }
        let answers = insert_within(&mut self.session(), rows).await;
        sql::all(answers.map_err(failed)?, super::NAME)
    }

    async fn change(&mut self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        let history = self.store.history;
        let answers = change_within(&mut self.session(), &changes, history).await;
        sql::all(answers.map_err(failed)?, super::NAME)
    }

    async fn find(&mut self, target: &Target) -> Result<Option<Task>, Error> {
        let statements = &self.store.database.statements;
        let found = read::of_target(self.connection, statements, target).await;
        found.map_err(failed)
    }

    async fn finish(&mut self, id: TaskId, version: u64, note: Note) -> Result<bool, Error> {
        let done = [Step::end(id, version, Ending::Done).noting(note)];
        let (database, history) = (&self.store.database, self.store.history);
        for _ in 0..TRIES {
            let query = guarded::query(&database.statements.finish, done.iter(), history);
            let query = query.persistent(database.statements.prepared);
            let rows = query.fetch_all(&mut *self.connection).await.map_err(failed)?;
            match guarded::came(&rows).map_err(failed)?.of(id, version) {
                Guarded::Done => return Ok(true),
                Guarded::Blocked => database.clock.sleep(PAUSE).await,
                Guarded::Lost => return Ok(false),
            }
        }
        Err(Why::Locked(None).error(super::NAME))
    }
}
