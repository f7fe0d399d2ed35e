//! The table on connections of the store's own, on which every statement sees what is committed when it begins.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::{MySqlConnection, SqlStr};

use super::claim::{self, of_kind};
use super::connections::Pool;
use super::driver::execute;
use super::insert::{self, MOST};
use super::ranges::ranges;
use super::sql::{AT_ONCE, Sql};
use super::write::{self, groups};
use super::{NAME, Server, errors, schema};
use crate::store::batched_calls::CALLS;
use crate::store::rules::NOBODY;
use crate::store::sql::codec::{hex, json, span};
use crate::store::sql::{
    Answered, Cells, Driver, Limits, Query, RowError, RowsRead, STATEMENT, Session, Value, counted,
};
use crate::store::table::{Columns, Found, Outcome, Range, Unreadable, Which, Write};
use crate::store::{Claim, NewRow, Stamped, state_code};
use crate::{Error, Key, Kind, State, Task, TaskId, Timestamp};

/// How many bytes of values any server takes. Those that allow less cannot be used for much.
const ALWAYS: usize = 512 << 10;
/// How many bytes a statement may take beside the values of a row that are long.
const REST_OF_ROW: usize = 512;

/// What both sessions say alike.
macro_rules! in_words_of_mysql {
    () => {
        const NAME: &'static str = NAME;
        const CALLS: usize = CALLS;
        const MOST: usize = MOST;

        fn failed(&self, error: sqlx::Error) -> Error {
            self.server.failed(error)
        }

        fn statement(&self, query: Query) -> SqlStr {
            self.server.sql.query(query)
        }

        fn keys(&self, keys: &[(Kind, Key)]) -> Result<Vec<Value>, sqlx::Error> {
            let names = keys.iter().map(|(kind, key)| [kind.as_str(), key.as_str()]);
            let names: Vec<_> = names
                .map(|names| names.map(|name| hex(name.as_bytes())))
                .collect();
            Ok(vec![Value::Text(json(&names)?)])
        }

        fn groups<'w>(&self, writes: &'w [Write]) -> Result<Vec<Vec<&'w Write>>, sqlx::Error> {
            groups(writes)
        }
    };
}

pub(super) use in_words_of_mysql;

/// How much a statement may carry of so many bytes: a server that gets one which is too long ends the connection without a
/// word.
pub(super) async fn limits(session: &impl Session, sql: &Sql, bytes: usize) -> Result<Limits, sqlx::Error> {
    let mut limits = Limits {
        budget: ALWAYS,
        longest: usize::MAX,
        by: "the server's max_allowed_packet",
    };
    if bytes > ALWAYS {
        let rows = session.fetch(sql.packet.clone(), Vec::new()).await?;
        let Some(Value::Int(packet)) = rows.first().and_then(|row| row.first()) else {
            return Err(sqlx::Error::RowNotFound);
        };
        let packet = usize::try_from(*packet).unwrap_or(0);
        limits.longest = packet.saturating_sub(REST_OF_ROW);
        // In a text, each byte takes two digits.
        limits.budget = STATEMENT.min(packet / 4);
    }
    Ok(limits)
}

/// The connections of a store.
#[derive(Clone)]
pub(super) struct OwnSession {
    server: Arc<Server>,
    /// Whether it is for workers; else it is for callers.
    is_workers: bool,
}

impl OwnSession {
    pub(super) fn new(server: &Arc<Server>, is_workers: bool) -> Self {
        let server = Arc::clone(server);
        Self { server, is_workers }
    }

    fn pool(&self) -> &Pool {
        self.server.pools.of(self.is_workers)
    }

    async fn retried<T, F>(&self, call: impl Fn() -> F) -> Result<T, sqlx::Error>
    where
        F: Future<Output = Result<T, sqlx::Error>>,
    {
        self.server.pools.retried(errors::is_crossed, call).await
    }

    /// Which of rows are there.
    async fn there(&self, writes: &[&Write]) -> Result<Vec<Outcome>, sqlx::Error> {
        let mut lent = self.pool().lend().await?;
        let there = rows_of(&mut lent, &self.server.sql.by_ids_lean, writes).await?;
        lent.give_back();
        let outcome = |write: &&Write| match there.contains_key(&write.row.id) {
            true => Outcome::Written,
            false => Outcome::Lost,
        };
        Ok(writes.iter().map(outcome).collect())
    }

    /// Rows without what is long, as they are written by now, committed or not. None is locked.
    pub(super) async fn written(&self, ids: &[TaskId]) -> Result<Found, sqlx::Error> {
        let mut lent = self.pool().lend().await?;
        // For one transaction, which is the next statement.
        let uncommitted = "SET TRANSACTION ISOLATION LEVEL READ UNCOMMITTED";
        sqlx::raw_sql(uncommitted).execute(&mut *lent).await?;
        let by_ids = self.server.sql.by_ids_lean.clone();
        let rows = lent.fetch(by_ids, &[Value::Ids(ids.to_vec())]).await?;
        lent.give_back();
        Ok(RowsRead::of(rows).found)
    }

    /// Locks those rows that no other transaction has locked, and writes those that are as they were.
    async fn write_locked(&self, writes: &[&Write]) -> Result<Vec<Outcome>, sqlx::Error> {
        let sql = &self.server.sql;
        let mut writing = self.pool().begin().await?;
        let locked = rows_of(&mut writing, &sql.unlocked_lean, writes).await?;
        let is_as_it_was = |rows: &BTreeMap<_, Task>, write: &Write| {
            rows.get(&write.row.id).is_some_and(|row| {
                let Write {
                    before, guards_wake, ..
                } = write;
                row.version == before.version && (!guards_wake || row.wake_at == before.wake_at)
            })
        };
        let free = writes
            .iter()
            .copied()
            .filter(|write| is_as_it_was(&locked, write));
        let free: Vec<_> = free.collect();
        let mut others = BTreeMap::new();
        if locked.len() < writes.len() {
            others = rows_of(&mut writing, &sql.by_ids_lean, writes).await?;
        }
        if !free.is_empty() {
            write::write(&mut writing, sql, AT_ONCE, &free).await?;
        }
        writing.commit().await?;
        let outcome = |write: &&Write| match write.row.id {
            _ if is_as_it_was(&locked, write) => Outcome::Written,
            id if !locked.contains_key(&id) && is_as_it_was(&others, write) => Outcome::Locked,
            _ => Outcome::Lost,
        };
        Ok(writes.iter().map(outcome).collect())
    }
}

/// What the rows of some writes are like, by a statement that reads them.
async fn rows_of(
    connection: &mut MySqlConnection,
    statement: &SqlStr,
    writes: &[&Write],
) -> Result<BTreeMap<TaskId, Task>, sqlx::Error> {
    let ids = Value::Ids(writes.iter().map(|write| write.row.id).collect());
    let read = RowsRead::of(connection.fetch(statement.clone(), &[ids]).await?);
    Ok(read.found.rows.into_iter().map(|row| (row.id, row)).collect())
}

#[async_trait]
impl Session for OwnSession {
    in_words_of_mysql!();

    fn classify(&self, error: &sqlx::Error) -> Option<RowError> {
        errors::classify(error)
    }

    async fn fetch(&self, sql: SqlStr, values: Vec<Value>) -> Result<Vec<Cells>, sqlx::Error> {
        let mut lent = self.pool().lend().await?;
        let rows = lent.fetch(sql, &values).await?;
        lent.give_back();
        Ok(rows)
    }

    async fn now(&self) -> Result<Timestamp, sqlx::Error> {
        let mut lent = self.pool().lend().await?;
        let now = claim::now(&mut lent, &self.server.sql).await?;
        lent.give_back();
        Ok(now)
    }

    async fn limits(&self, bytes: usize) -> Result<Limits, sqlx::Error> {
        limits(self, &self.server.sql, bytes).await
    }

    /// Writes new rows by one statement, or none of them: which then are to be read first.
    async fn insert(&self, rows: Vec<&NewRow>, now: Option<Timestamp>) -> Answered<Vec<Outcome>> {
        let mut lent = self.pool().lend().await?;
        let sql = &self.server.sql;
        let now = match now {
            Some(now) => now,
            None => claim::now(&mut lent, sql).await?,
        };
        let written = insert::all(&mut lent, sql, &rows, now).await;
        if errors::leaves_connection(&written) {
            lent.give_back();
        }
        let outcome = match written {
            Ok(()) => || Outcome::Written,
            Err(error) if errors::is_crossed(&error) || errors::is_duplicate(&error) => || Outcome::Lost,
            Err(error) => return Err(error),
        };
        let found = rows.iter().map(|_| outcome()).collect();
        Ok(Stamped { now, found })
    }

    /// Writes a part at once, if all of it is as it was and no row locked; else those rows that can be had.
    async fn write(&self, writes: Vec<&Write>) -> Result<Vec<Outcome>, sqlx::Error> {
        let mut lent = self.pool().lend().await?;
        let written = write::write(&mut lent, &self.server.sql, AT_ONCE, &writes).await;
        if errors::leaves_connection(&written) {
            lent.give_back();
        }
        match written {
            Ok(count) if usize::try_from(count) == Ok(writes.len()) => {
                Ok(writes.iter().map(|_| Outcome::Written).collect())
            }
            // Some are gone. Those that are there are written.
            Ok(_) => self.there(&writes).await,
            Err(error) if errors::is_in_the_way(&error) => self.retried(|| self.write_locked(&writes)).await,
            Err(error) => Err(error),
        }
    }

    async fn ranges(&self, asked: &[Range], columns: Columns) -> Answered<Vec<Found>> {
        let Server { sql, known, .. } = &*self.server;
        let is_of_all = asked.iter().all(|range| range.kind.is_none());
        let together = if is_of_all { asked.len().max(1) } else { 1 };
        let mut lent = self.pool().lend().await?;
        let (mut now, mut found) = (None, Vec::with_capacity(asked.len()));
        for asked in asked.chunks(together) {
            let (at, of_ranges) = ranges(&mut lent, sql, known, asked, columns).await?;
            now = now.max(at);
            found.extend(of_ranges);
        }
        lent.give_back();
        self.stamped((now, found)).await
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Answered<Vec<usize>> {
        let spans: Vec<_> = spans.iter().copied().map(span).collect();
        let longest = spans.iter().max().copied().unwrap_or(0);
        let state = Value::Int(state_code::of(state).into());
        let values = vec![
            Value::Text(json(&spans)?),
            of_kind(kind),
            state,
            Value::Int(longest),
            Value::count(most),
        ];
        self.stamped(counted(&self.fetch(self.server.sql.count.clone(), values).await?))
            .await
    }

    async fn claim(&self, which: Which<'_>, claim: &Claim) -> Answered<Found> {
        let claimed = || claim::claim(self.pool(), &self.server.sql, which, claim);
        let claimed = self.retried(claimed).await?;
        // Of the others the claims are not lost by it; where it fails, these are found once more.
        let _ = self.set_aside(&claimed.found.unreadable, claim.lease).await;
        Ok(claimed)
    }

    async fn set_aside(&self, rows: &[Unreadable], pause: Duration) -> Result<(), sqlx::Error> {
        for row in rows {
            let owner = Value::Text(NOBODY.to_owned());
            let values = vec![owner, Value::Int(span(pause)), Value::Bytes(row.row.clone())];
            match self.fetch(self.server.sql.set_aside.clone(), values).await {
                // What has it locked has it out of the way for now.
                Err(error) if !errors::is_in_the_way(&error) => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    async fn remove_past(&self, states: &[State], ids: Vec<String>) -> Result<u64, sqlx::Error> {
        let sql = &self.server.sql;
        let states: Vec<_> = states
            .iter()
            .map(|state| state_code::of(*state).to_string())
            .collect();
        let values = [Value::Text(json(&ids)?), Value::Text(states.join(","))];
        let remove = || async {
            let mut writing = self.pool().begin().await?;
            let past = writing.fetch(sql.past_unlocked.clone(), &values).await?;
            let id = |row: &Cells| match row.first() {
                Some(Value::Bytes(id)) => Some(hex(id)),
                _ => None,
            };
            let past = Value::Text(json(&past.iter().filter_map(id).collect::<Vec<_>>())?);
            let removed = execute(&mut writing, sql.remove.clone(), &[past]).await?;
            writing.commit().await?;
            Ok(removed)
        };
        self.retried(remove).await
    }

    async fn check(&self) -> Result<(), sqlx::Error> {
        schema::check(self.pool(), &self.server.sql.table).await
    }
}
