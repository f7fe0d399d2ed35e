//! Keeps rows by statements of PostgreSQL, which an [`Executor`] executes.

use std::collections::BTreeSet;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use super::driver::{name, text};
use super::executor::Executor;
use super::range::Ranges;
use super::sql::Statements;
use super::{NAME, columns, errors, schema};
use crate::store::batched_calls::CALLS;
use crate::store::rules::NOBODY;
use crate::store::sql::codec::{limit, span};
use crate::store::sql::{
    Answered, Cells, Limits, Query, RowError, RowsRead, STATEMENT, Session, Value, batches, counted, id,
    of_ranges, time_of, written_size,
};
use crate::store::table::{Columns, Found, Outcome, Range, Unreadable, Which, Write};
use crate::store::{Claim, NewRow, Stamped, state_code};
use crate::{Error, Key, Kind, State, TaskId, Timestamp};

#[derive(Clone)]
pub(super) struct PgSession<L>(pub(super) L);

impl<L: Executor> PgSession<L> {
    fn statements(&self) -> &Statements {
        &self.0.database().statements
    }
}

#[async_trait]
impl<L: Executor> Session for PgSession<L> {
    const NAME: &'static str = NAME;
    const CALLS: usize = CALLS;

    fn failed(&self, error: sqlx::Error) -> Error {
        self.0.database().failed(error)
    }

    fn classify(&self, error: &sqlx::Error) -> Option<RowError> {
        errors::classify(error).filter(|_| !L::IS_JOINED)
    }

    fn statement(&self, query: Query) -> SqlStr {
        self.statements().query(query)
    }

    fn keys(&self, keys: &[(Kind, Key)]) -> Result<Vec<Value>, sqlx::Error> {
        let names = keys
            .iter()
            .map(|(kind, key)| (name(kind.as_str()), name(key.as_str())));
        let (kinds, names) = names.unzip();
        Ok(vec![Value::Texts(kinds), Value::Texts(names)])
    }

    async fn fetch(&self, sql: SqlStr, values: Vec<Value>) -> Result<Vec<Cells>, sqlx::Error> {
        self.0.fetch(&sql, &values).await
    }

    async fn now(&self) -> Result<Timestamp, sqlx::Error> {
        time_of(&self.0.fetch(&self.statements().now, &[]).await?)
    }

    async fn hold(&self, ids: &[TaskId], keys: &[(Kind, Key)]) -> Answered<Found> {
        if !L::IS_JOINED {
            return self.read(ids, keys, Columns::All).await;
        }
        let mut answer = RowsRead::default();
        if !ids.is_empty() || keys.is_empty() {
            let ids = [Value::Ids(ids.to_vec())];
            answer.add(self.0.held(&self.statements().hold_ids, &ids).await?, &[]);
        }
        if !keys.is_empty() {
            let names = self.keys(keys)?;
            answer.add(self.0.held(&self.statements().hold_keys, &names).await?, keys);
        }
        let now = answer.now.ok_or(sqlx::Error::RowNotFound)?;
        let found = answer.found;
        Ok(Stamped { now, found })
    }

    async fn limits(&self, _: usize) -> Result<Limits, sqlx::Error> {
        Ok(Limits {
            budget: STATEMENT,
            longest: errors::LONGEST,
            by: "PostgreSQL",
        })
    }

    fn refuses(&self, row: &NewRow) -> Option<RowError> {
        errors::refuses(row)
    }

    async fn insert(&self, rows: Vec<&NewRow>, now: Option<Timestamp>) -> Answered<Vec<Outcome>> {
        let values = columns::new_rows(&rows, now, self.0.channel())?;
        let told = self.0.fetch(&self.statements().add, &values).await?;
        let Some([Value::Int(now), some, ..]) = told.first().map(Vec::as_slice) else {
            return Err(sqlx::Error::RowNotFound);
        };
        let mut written: BTreeSet<TaskId> = match some {
            Value::Ids(some) => some.iter().copied().collect(),
            _ => rows.iter().map(|row| row.id).collect(),
        };
        // Of twins the first.
        let outcome = |row: &&NewRow| Outcome::of(written.remove(&row.id));
        Ok(Stamped {
            now: Timestamp::from_millis(*now),
            found: rows.iter().map(outcome).collect(),
        })
    }

    fn groups<'w>(&self, writes: &'w [Write]) -> Result<Vec<Vec<&'w Write>>, sqlx::Error> {
        let writes = Vec::from_iter(writes);
        let groups = batches(&writes, usize::MAX, STATEMENT, |write| written_size(write));
        Ok(groups.map(<[_]>::to_vec).collect())
    }

    async fn write(&self, writes: Vec<&Write>) -> Result<Vec<Outcome>, sqlx::Error> {
        let values = columns::writes(&writes, self.0.channel())?;
        let statements = self.statements();
        // Nothing waits here, but in a transaction of a service's own.
        let write = if L::IS_JOINED {
            &statements.write_held
        } else {
            &statements.write
        };
        let written = ids(&self.0.fetch(write, &values).await?);
        let mut same = BTreeSet::new();
        if written.len() < writes.len() {
            same = ids(&self.0.fetch(&statements.same, &values[..3]).await?);
        }
        let outcome = |write: &&Write| match write.row.id {
            id if written.contains(&id) => Outcome::Written,
            id if same.contains(&id) => Outcome::Locked,
            _ => Outcome::Lost,
        };
        Ok(writes.iter().map(outcome).collect())
    }

    async fn ranges(&self, ranges: &[Range], columns: Columns) -> Answered<Vec<Found>> {
        let mut answer = (None, Vec::new());
        if !ranges.is_empty() {
            let Ranges { text, values } = Ranges::of(&self.0.database().names, ranges, columns);
            let rows = self.0.fetch(&AssertSqlSafe(text).into_sql_str(), &values).await?;
            answer = of_ranges(rows, ranges);
        }
        self.stamped(answer).await
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Answered<Vec<usize>> {
        let values = [
            Value::of_text(name(kind.as_str())),
            Value::Int(state_code::of(state).into()),
            Value::Ints(spans.iter().map(|&within| Some(span(within))).collect()),
            Value::count(most),
        ];
        self.stamped(counted(&self.0.fetch(&self.statements().count, &values).await?))
            .await
    }

    /// Claims a row that cannot be read as well, and then takes it from that worker until the lease ends.
    async fn claim(&self, which: Which<'_>, claim: &Claim) -> Answered<Found> {
        let (statement, mut values) = match which {
            Which::Due => (&self.statements().claim_due, Vec::new()),
            Which::These(rows) => {
                let ids = Value::Ids(rows.iter().map(|&(id, _)| id).collect());
                let version = |&(_, version): &_| i64::try_from(version).ok();
                let versions = Value::Ints(rows.iter().map(version).collect());
                (&self.statements().claim_these, vec![ids, versions])
            }
        };
        let room = claim.room.iter().filter(|(_, room)| **room > 0);
        let room = room.map(|(kind, room)| (name(kind.as_str()), Some(limit(*room))));
        let (kinds, room) = room.unzip();
        values.extend([
            Value::Texts(kinds),
            Value::Ints(room),
            Value::Text(text(&claim.owner)),
            Value::Int(span(claim.lease)),
            Value::count(claim.bytes),
            Value::of_text(claim.claimed().map(|noted| text(&noted))),
        ]);
        let RowsRead { now, found } = RowsRead::of(self.0.fetch(statement, &values).await?);
        if !found.unreadable.is_empty() {
            let [from, to] = [&claim.owner, NOBODY].map(|owner| Value::Text(text(owner)));
            let values = [ids_of(&found.unreadable), from, to];
            // Of the others the claims are not lost by it; where it fails, the end of this lease is a stall.
            let _ = self.0.fetch(&self.statements().pass_on, &values).await;
        }
        self.stamped((now, found)).await
    }

    async fn set_aside(&self, rows: &[Unreadable], pause: Duration) -> Result<(), sqlx::Error> {
        let owner = Value::Text(NOBODY.to_owned());
        let values = [ids_of(rows), Value::Int(span(pause)), owner];
        self.0
            .fetch(&self.statements().set_aside, &values)
            .await
            .map(drop)
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, sqlx::Error> {
        let states = states.iter().map(|state| i64::from(state_code::of(*state)));
        let end = |state: Option<i64>| Value::Int(state.unwrap_or(0));
        let values = [
            Value::Ints(states.clone().map(Some).collect()),
            Value::count(limit),
            end(states.clone().min()),
            end(states.max()),
        ];
        let removed = self.0.fetch(&self.statements().remove, &values).await?;
        Ok(removed.len() as u64)
    }

    async fn check(&self) -> Result<(), sqlx::Error> {
        schema::check(self.0.database()).await
    }

    async fn notified(&self) {
        self.0.database().listener.notified().await;
    }
}

/// The ids of rows that cannot be read.
fn ids_of(rows: &[Unreadable]) -> Value {
    Value::Ids(rows.iter().filter_map(|row| row.id).collect())
}

/// The ids in the first column.
fn ids(rows: &[Cells]) -> BTreeSet<TaskId> {
    rows.iter().filter_map(|row| id(row.first()?)).collect()
}
