//! New rows, and changes of rows, for their callers: each batch in a transaction of its own.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;

use super::connections::Writing;
use super::session::{MySqlSession, Within};
use super::{Server, errors, read};
use crate::clock::Clock;
use crate::store::sql::{self, Answers, Locked, Session, Verbs, Why};
use crate::store::{Change, NewRow, Stamped};
use crate::{Answer, Error, Scheduled, TaskId, Timestamp};

#[async_trait]
impl Verbs for Server {
    const NAME: &'static str = super::NAME;

    fn clock(&self) -> &Clock {
        &self.pools.clock
    }

    fn blame(error: &sqlx::Error) -> Option<Why> {
        errors::blame(error)
    }

    fn refuses(_: &NewRow) -> Option<Why> {
        // How long a row may be the server says.
        None
    }

    fn failed(&self, error: sqlx::Error) -> Error {
        if errors::is_of_server(&error) {
            for pool in [&self.pools.callers, &self.pools.workers, &self.pools.waiting] {
                pool.forget();
            }
        }
        errors::failed(error)
    }

    async fn now(&self) -> Result<Timestamp, sqlx::Error> {
        read::server_now(self).await
    }

    async fn add(&self, rows: &[NewRow]) -> Result<Stamped<BTreeSet<TaskId>>, sqlx::Error> {
        let mut lent = self.pools.callers.lend().await?;
        let mut session = MySqlSession {
            connection: &mut lent,
            server: self,
            within: Within::Nothing,
        };
        let added = session.add(rows, None).await;
        drop(session);
        if added
            .as_ref()
            .err()
            .is_none_or(|error| errors::blame(error).is_some())
        {
            lent.give_back();
        }
        added
    }

    async fn insert(
        &self,
        rows: Vec<NewRow>,
        locked: Locked,
    ) -> Result<Stamped<Answers<Scheduled>>, sqlx::Error> {
        let insert = || async {
            let Some(mut writing) = self.begin(locked).await? else {
                return self.all_locked(rows.len()).await;
            };
            let mut session = MySqlSession {
                connection: &mut writing,
                server: self,
                within: Within::Own(locked),
            };
            let answers = sql::insert(&mut session, rows.clone()).await?;
            drop(session);
            writing.commit().await?;
            Ok(answers)
        };
        self.pools.retried(insert).await
    }

    async fn change(
        &self,
        changes: &[Change],
        history: Duration,
        locked: Locked,
    ) -> Result<Stamped<Answers<Answer>>, sqlx::Error> {
        let change = || async {
            let Some(mut writing) = self.begin(locked).await? else {
                return self.all_locked(changes.len()).await;
            };
            let mut session = MySqlSession {
                connection: &mut writing,
                server: self,
                within: Within::Own(locked),
            };
            let answers = sql::change(&mut session, changes, history).await?;
            drop(session);
            writing.commit().await?;
            Ok(answers)
        };
        self.pools.retried(change).await
    }
}

impl Server {
    async fn begin(&self, locked: Locked) -> Result<Option<Writing<'_>>, sqlx::Error> {
        match locked {
            Locked::Leave => Writing::begin(&self.pools.callers).await.map(Some),
            Locked::Await => Writing::in_turn(&self.pools, &self.sql).await,
        }
    }
}
