//! A transaction that the service has opened in the same database.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::MySqlConnection;

use super::errors::failed;
use super::session::{MySqlSession, Within};
use super::{MySqlStore, guarded, read};
use crate::store::sql::{self, Why};
use crate::store::{Change, Ending, Guarded, NewRow, Note, Stamped, Step, Target, Transaction};
use crate::{Answer, Error, Scheduled, State, Task, TaskId};

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

/// How often a claim is asked to be finished whose row somebody else has locked, and for how long in between.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_millis(50);

#[async_trait]
impl Transaction for Joined<'_> {
    async fn insert(&mut self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
        let mut session = self.session().await.map_err(failed)?;
        let answers = sql::insert_at_once(&mut session, rows).await;
        let answers = answers.map_err(failed)?;
        session.give_back();
        sql::all(answers, super::NAME)
    }

    async fn change(&mut self, changes: Vec<Change>) -> Result<Stamped<Vec<Answer>>, Error> {
        let history = self.store.history;
        let mut session = self.session().await.map_err(failed)?;
        let answers = sql::change(&mut session, &changes, history).await;
        let answers = answers.map_err(failed)?;
        session.give_back();
        sql::all(answers, super::NAME)
    }

    async fn find(&mut self, target: &Target) -> Result<Option<Task>, Error> {
        let found = read::of_target(self.connection, &self.store.server.sql, target).await;
        found.map_err(failed)
    }

    async fn finish(&mut self, id: TaskId, version: u64, note: Note) -> Result<bool, Error> {
        let done = [Step::end(id, version, Ending::Done).noting(note)];
        let clock = &self.store.server.pools.clock;
        for _ in 0..TRIES {
            match self.settle(&done).await.map_err(failed)? {
                Guarded::Done => return Ok(true),
                Guarded::Lost => return Ok(false),
                Guarded::Blocked => clock.sleep(PAUSE).await,
            }
        }
        Err(Why::Locked(None).error(super::NAME))
    }
}

impl Joined<'_> {
    async fn session(&mut self) -> Result<MySqlSession<'_>, sqlx::Error> {
        let server = &*self.store.server;
        let within = Within::Services(server.pools.callers.lend().await?);
        Ok(MySqlSession {
            connection: self.connection,
            server,
            within,
        })
    }

    /// Ends a claim. What was renewed of it is left alone: the transaction may see that as it was when it began.
    async fn settle(&mut self, end: &[Step; 1]) -> Result<Guarded, sqlx::Error> {
        let [Step { id, version, .. }] = *end;
        let server = &*self.store.server;
        let sql = &server.sql;
        let rows = read::sound_by_ids(self.connection, &sql.finished, [id])
            .await?
            .rows;
        if rows.is_empty() {
            // Somebody has it locked, unless it is gone; who sees it as it is, says so.
            let mut lent = server.pools.workers.lend().await?;
            let looked = read::look(&mut lent, &sql.look, [id]).await?;
            lent.give_back();
            let holds = looked
                .rows
                .get(&id)
                .is_some_and(|(state, row, _)| *state == State::Running && row.wake.version == version);
            return Ok(if holds { Guarded::Blocked } else { Guarded::Lost });
        }
        let now = read::now(self.connection, sql).await?;
        let history = self.store.history;
        let taken = guarded::take(self.connection, server, rows, end, now, history).await?;
        Ok(match taken[..] {
            [true] => Guarded::Done,
            _ => Guarded::Lost,
        })
    }
}
