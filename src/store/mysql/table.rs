//! The table on connections of the store's own, on which every statement sees what is committed when it begins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};

use super::cells;
use super::connections::{Pool, Writing};
use super::insert::{self, MOST, budget};
use super::ranges::ranges;
use super::read::{self, span};
use super::sql::{AT_ONCE, query};
use super::write::{self, Form, Part, parts};
use super::{NAME, Server, claim, errors, schema};
use crate::store::sql::codec::number;
use crate::store::sql::{Blame, batches, by_parts, size};
use crate::store::table::{Columns, Found, Outcome, Range, Table, Unreadable, Which, Write};
use crate::store::turns::CALLS;
use crate::store::{Claim, NewRow, Noted, Stamped};
use crate::{Error, Key, Kind, State, TaskId, Timestamp};

/// The rows of a server.
#[derive(Clone)]
pub(super) struct ServerTable {
    server: Arc<Server>,
    /// Whether it is for workers; else it is for callers.
    is_workers: bool,
}

/// What is read on a connection that is lent and given back.
macro_rules! reading {
    ($table:expr, |$connection:ident, $sql:ident| $read:expr) => {
        async {
            let mut lent = $table.pool().lend().await?;
            let ($connection, $sql) = (&mut *lent, &$table.server.sql);
            let found = $read.await?;
            lent.give_back();
            Ok(found)
        }
        .await
        .map_err(|error| $table.server.failed(error))
    };
}

impl ServerTable {
    pub(super) fn new(server: &Arc<Server>, is_workers: bool) -> Self {
        let server = Arc::clone(server);
        Self { server, is_workers }
    }

    fn pool(&self) -> &Pool {
        match self.is_workers {
            false => &self.server.pools.callers,
            true => &self.server.pools.workers,
        }
    }

    /// What came of a batch that is written by parts where some of its rows are in the way.
    async fn by_parts<F>(
        &self,
        apart: Vec<Vec<usize>>,
        step: impl Fn(Vec<usize>) -> F,
    ) -> Result<Vec<Outcome>, Error>
    where
        F: Future<Output = Result<Vec<Outcome>, sqlx::Error>>,
    {
        let step = |places| {
            let step = step(places);
            async { Ok(step.await?.into_iter().map(Ok).collect()) }
        };
        let came = by_parts(apart, errors::blame, step).await;
        let came = came.map_err(|error| self.server.failed(error))?.into_iter();
        let outcome = |came: Result<Outcome, Blame>| came.unwrap_or_else(|blame| blame.outcome(NAME));
        Ok(came.map(outcome).collect())
    }

    /// Writes new rows by one statement, or none of them: which then are to be read first.
    async fn add(&self, rows: &[&NewRow], first: &OnceLock<Timestamp>) -> Result<Vec<Outcome>, sqlx::Error> {
        let mut lent = self.pool().lend().await?;
        let sql = &self.server.sql;
        let (_, too_big) = budget(&mut lent, sql, rows.iter().map(|row| size(row))).await?;
        let now = match first.get() {
            Some(now) => *now,
            None => read::now(&mut lent, sql).await?,
        };
        let written = match too_big {
            Some(too_big) => Err(too_big.into()),
            None => insert::all(&mut lent, sql, rows, now).await,
        };
        // A row that is in the way says nothing of the connection.
        if let Err(error) = &written
            && !errors::is_crossed(error)
            && errors::blame(error).is_none()
        {
            return written.map(|()| Vec::new());
        }
        lent.give_back();
        first.get_or_init(|| now);
        let outcome = match written {
            Ok(()) => || Outcome::Written,
            Err(error) if errors::is_crossed(&error) || errors::is_duplicate(&error) => || Outcome::Lost,
            Err(error) => return Err(error),
        };
        Ok(rows.iter().map(|_| outcome()).collect())
    }

    /// Writes a part at once, if all of it is as it was and nobody has it locked; else those rows that can be had.
    async fn write_part(&self, form: &Form, writes: &[&Write]) -> Result<Vec<Outcome>, sqlx::Error> {
        let mut lent = self.pool().lend().await?;
        let sql = &self.server.sql;
        let refills = writes.iter().filter(|write| write.refill);
        let (_, too_big) = budget(&mut lent, sql, refills.map(|write| write.row.payload.len())).await?;
        let written = match too_big {
            Some(too_big) => Err(too_big.into()),
            None => write::write(&mut lent, sql, AT_ONCE, form, writes).await,
        };
        // A row that is in the way says nothing of the connection.
        let says_nothing = |error| errors::is_in_the_way(error) || errors::blame(error).is_some();
        if written.as_ref().err().is_none_or(says_nothing) {
            lent.give_back();
        }
        match written {
            Ok(count) if usize::try_from(count) == Ok(writes.len()) => {
                return Ok(writes.iter().map(|_| Outcome::Written).collect());
            }
            // Some are gone. Those that are there are written.
            Ok(_) => return self.there(writes).await,
            Err(error) if errors::is_in_the_way(&error) => {}
            Err(error) => return Err(error),
        }
        let pools = &self.server.pools;
        pools.retried(|| self.write_locked(form, writes)).await
    }

    /// Which of rows are there.
    async fn there(&self, writes: &[&Write]) -> Result<Vec<Outcome>, sqlx::Error> {
        let mut lent = self.pool().lend().await?;
        let there = versions(&mut lent, &self.server.sql.by_ids_lean, writes).await?;
        lent.give_back();
        let outcome = |write: &&Write| match there.contains_key(&write.row.id) {
            true => Outcome::Written,
            false => Outcome::Lost,
        };
        Ok(writes.iter().map(outcome).collect())
    }

    /// Locks those rows of a part that nobody else has locked, and writes those that are as they were.
    async fn write_locked(&self, form: &Form, writes: &[&Write]) -> Result<Vec<Outcome>, sqlx::Error> {
        let sql = &self.server.sql;
        let mut writing = Writing::begin(self.pool()).await?;
        let locked = versions(&mut writing, &sql.unlocked_lean, writes).await?;
        let is_as_it_was = |versions: &Versions, write: &Write| {
            let found = versions.get(&write.row.id);
            found.is_some_and(|&(version, wake_at)| {
                version == write.before.version && (!write.guards_wake || wake_at == write.before.wake_at)
            })
        };
        let free: Vec<_> = writes
            .iter()
            .copied()
            .filter(|write| is_as_it_was(&locked, write))
            .collect();
        let mut others = Versions::new();
        if locked.len() < writes.len() {
            others = versions(&mut writing, &sql.by_ids_lean, writes).await?;
        }
        if !free.is_empty() {
            write::write(&mut writing, sql, AT_ONCE, form, &free).await?;
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

/// The version and `wake_at` of rows.
type Versions = BTreeMap<TaskId, (u64, Option<Timestamp>)>;

/// What rows are like, by a statement that reads them.
async fn versions(
    connection: &mut MySqlConnection,
    statement: &Arc<str>,
    writes: &[&Write],
) -> Result<Versions, sqlx::Error> {
    let query = query(statement).bind(cells::ids(writes.iter().map(|write| write.row.id))?);
    let mut versions = Versions::new();
    for row in query.fetch_all(connection).await? {
        if let Some(id) = cells::id(&row, 0)? {
            let wake_at = row.try_get::<Option<i64>, _>(7)?;
            versions.insert(id, (row.try_get(4)?, wake_at.map(Timestamp::from_millis)));
        }
    }
    Ok(versions)
}

#[async_trait]
impl Table for ServerTable {
    fn name(&self) -> &'static str {
        NAME
    }

    fn calls(&self) -> Option<usize> {
        Some(CALLS)
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        reading!(self, |connection, sql| read::now(connection, sql))
    }

    async fn read(
        &self,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
        columns: Columns,
    ) -> Result<Stamped<Found>, Error> {
        reading!(self, |connection, sql| read::read(
            connection, sql, ids, keys, columns
        ))
    }

    async fn range(&self, asked: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        let known = &self.server.known;
        let is_alike = asked
            .windows(2)
            .all(|two| two[0].kind.is_none() && two[1].kind.is_none());
        if is_alike && !asked.is_empty() {
            return reading!(self, |connection, sql| ranges(
                connection, sql, known, asked, columns
            ));
        }
        let (mut now, mut found) = (self.now().await?, Vec::with_capacity(asked.len()));
        for range in asked {
            let range = std::slice::from_ref(range);
            let answer = reading!(self, |connection, sql| ranges(
                connection, sql, known, range, columns
            ))?;
            now = answer.now;
            found.extend(answer.found);
        }
        Ok(Stamped { now, found })
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        reading!(self, |connection, sql| read::count(
            connection,
            sql,
            (kind, state),
            spans,
            most
        ))
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        let places: Vec<_> = (0..rows.len()).collect();
        let sizes = || rows.iter().map(size);
        let (budget, _) = match rows.is_empty() {
            true => (usize::MAX, None),
            false => reading!(self, |connection, sql| budget(connection, sql, sizes()))?,
        };
        let apart = batches(&places, MOST, budget, |&place| size(&rows[place]));
        let apart = apart.map(<[usize]>::to_vec).collect();
        let first = OnceLock::new();
        let add = |part: Vec<usize>| {
            let first = &first;
            async move {
                let part: Vec<_> = part.into_iter().map(|place| &rows[place]).collect();
                match part.is_empty() {
                    true => Ok(Vec::new()),
                    false => self.add(&part, first).await,
                }
            }
        };
        let found = self.by_parts(apart, add).await?;
        let now = match first.into_inner() {
            Some(now) => now,
            None => self.now().await?,
        };
        Ok(Stamped { now, found })
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        let mut came = BTreeMap::new();
        for Part { form, writes } in parts(writes).map_err(|error| self.server.failed(error))? {
            let (form, writes) = (&form, &writes);
            let step = |part: Vec<usize>| async move {
                let part: Vec<_> = part.into_iter().map(|place| writes[place]).collect();
                match part.is_empty() {
                    true => Ok(Vec::new()),
                    false => self.write_part(form, &part).await,
                }
            };
            let outcomes = self.by_parts(vec![(0..writes.len()).collect()], step).await?;
            came.extend(writes.iter().map(|write| write.row.id).zip(outcomes));
        }
        let outcome = |write: &Write| came.remove(&write.row.id).unwrap_or(Outcome::Lost);
        Ok(writes.iter().map(outcome).collect())
    }

    async fn claim(&self, which: Which<'_>, claim: &Claim) -> Result<Stamped<Found>, Error> {
        let claimed = || claim::claim(self.pool(), &self.server.sql, which, claim);
        let claimed = self.server.pools.retried(claimed).await;
        let claimed = claimed.map_err(|error| self.server.failed(error))?;
        self.set_aside(&claimed.found.unreadable, claim.lease).await?;
        Ok(claimed)
    }

    async fn set_aside(&self, rows: &[Unreadable], pause: Duration) -> Result<(), Error> {
        for row in rows {
            let set = async {
                let mut lent = self.pool().lend().await?;
                let set = query(&self.server.sql.set_aside)
                    .bind(span(pause))
                    .bind(&*row.row);
                let set = set.execute(&mut *lent).await;
                // Whoever has it locked has it out of the way for now.
                if let Err(error) = set
                    && !errors::is_in_the_way(&error)
                {
                    return Err(error);
                }
                lent.give_back();
                Ok(())
            };
            set.await.map_err(|error| self.server.failed(error))?;
        }
        Ok(())
    }

    async fn remove(&self, states: &[State], limit: usize) -> Result<u64, Error> {
        let past: Vec<_> = states.iter().map(|&state| Range::overdue(state, limit)).collect();
        let mut of_kinds = BTreeMap::<Kind, usize>::new();
        let mut ids = BTreeSet::new();
        for found in self.range(&past, Columns::Lean).await?.found {
            for row in found.rows {
                let of_kind = of_kinds.entry(row.kind).or_default();
                *of_kind += 1;
                if *of_kind <= limit {
                    ids.insert(row.id.as_bytes().to_vec());
                }
            }
            // As many again at the most.
            ids.extend(found.unreadable.into_iter().map(|row| row.row));
        }
        if ids.is_empty() {
            return Ok(0);
        }
        let removed = self.server.pools.retried(|| self.remove_past(states, &ids)).await;
        removed.map_err(|error| self.server.failed(error))
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        reading!(self, |connection, sql| read::kinds(
            connection, sql, state, after, limit
        ))
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        reading!(self, |connection, sql| read::noted(connection, sql, id))
    }

    async fn check(&self) -> Result<(), Error> {
        let checked = schema::check(self.pool(), &self.server.sql.table).await;
        checked.map_err(|error| self.server.failed(error))
    }
}

impl ServerTable {
    /// Removes those of these rows that still are past, and that nobody else has locked.
    async fn remove_past(&self, states: &[State], ids: &BTreeSet<Vec<u8>>) -> Result<u64, sqlx::Error> {
        let sql = &self.server.sql;
        let states: Vec<_> = states.iter().map(|state| number(*state).to_string()).collect();
        let json = |ids: Vec<String>| crate::store::sql::codec::json(&ids);
        let mut writing = Writing::begin(self.pool()).await?;
        let past = query(&sql.past_unlocked)
            .bind(json(ids.iter().map(|id| cells::hex(id)).collect())?)
            .bind(states.join(","))
            .fetch_all(&mut *writing)
            .await?;
        let id = |row: &MySqlRow| row.try_get::<&[u8], _>(0).map(cells::hex);
        let past = past.iter().map(id).collect::<Result<_, _>>()?;
        let remove = query(&sql.remove).bind(json(past)?);
        let removed = remove.execute(&mut *writing).await?.rows_affected();
        writing.commit().await?;
        Ok(removed)
    }
}
