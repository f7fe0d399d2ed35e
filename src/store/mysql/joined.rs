//! The table as a transaction of the service's own has it.
//!
//! What such a transaction sees may be as old as its first statement, while what it writes meets rows as they are. So rows are
//! looked at by a connection of the store's own as well, which sees what is committed. What the transaction itself has done
//! to a row counts, as that has a later version.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use sqlx::MySqlConnection;
use tokio::sync::Mutex;

use super::connections::Lent;
use super::insert::{budget, prepared};
use super::ranges::ranges;
use super::read::{self, Read, by_ids, of_keys};
use super::sql::{WIDTHS, query};
use super::write::{self, Part, parts};
use super::{NAME, Server, errors};
use crate::store::sql::codec::{Hex, json};
use crate::store::sql::{batches, size};
use crate::store::table::{Columns, Found, Outcome, Range, Table, Write};
use crate::store::{NewRow, Noted, Stamped, row};
use crate::{Error, Key, Kind, State, Task, TaskId};

/// The service's connection.
pub(super) struct JoinedTable<'t> {
    connection: Mutex<&'t mut MySqlConnection>,
    server: &'t Server,
}

/// What a call on the service's connection gives, with one of the store's own beside it.
macro_rules! joined {
    ($table:expr, |$inside:ident, $outside:ident| $call:expr) => {
        async {
            let mut connection = $table.connection.lock().await;
            let mut lent: Lent<'_> = $table.server.pools.callers.lend().await?;
            let ($inside, $outside) = (&mut **connection, &mut *lent);
            let found = $call.await?;
            lent.give_back();
            Ok(found)
        }
        .await
        .map_err(|error| $table.server.failed(error))
    };
}

impl<'t> JoinedTable<'t> {
    pub(super) fn new(server: &'t Server, connection: &'t mut MySqlConnection) -> Self {
        let connection = Mutex::new(connection);
        Self { connection, server }
    }

    /// Rows as they are, committed or the transaction's own; none is locked.
    async fn seen(
        &self,
        inside: &mut MySqlConnection,
        outside: &mut MySqlConnection,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
    ) -> Result<Stamped<Found>, sqlx::Error> {
        let sql = &self.server.sql;
        let mut of_key = of_keys(outside, sql, keys).await?;
        of_key.extend(of_keys(inside, sql, keys).await?);
        let all: BTreeSet<_> = ids.iter().chain(of_key.keys()).copied().collect();
        let own = by_ids(inside, &sql.by_ids, all.iter().copied())
            .await?
            .found(&of_key);
        let read = by_ids(outside, &sql.by_ids, all).await?;
        let now = match read.now {
            Some(now) => now,
            None => read::now(outside, sql).await?,
        };
        let found = latest(read.found(&of_key), own);
        Ok(Stamped { now, found })
    }

    /// The same, with those locked that may be changed. A lock on a row that runs would keep its worker from renewing its lease
    /// until the transaction ends, and one on a row that is not there, at `REPEATABLE READ`, others from adding rows: so rows
    /// are looked at before.
    async fn held(
        &self,
        inside: &mut MySqlConnection,
        outside: &mut MySqlConnection,
        ids: &[TaskId],
        keys: &[(Kind, Key)],
    ) -> Result<Stamped<Found>, sqlx::Error> {
        let Stamped { now, mut found } = self.seen(inside, outside, ids, keys).await?;
        // Each with the version at which its lease has ended.
        let wanted = found.rows.iter().filter_map(|row| match row.state {
            State::Scheduled | State::Dead => Some((row.id, None)),
            _ => row::lease_has_ended(row, now).then_some((row.id, Some(row.version))),
        });
        let wanted: BTreeMap<_, _> = wanted.collect();
        if wanted.is_empty() {
            return Ok(Stamped { now, found });
        }
        let values: Vec<_> = wanted.iter().map(|(&id, ended)| (Hex(id), ended)).collect();
        let held = query(&self.server.sql.held)
            .bind(json(&values)?)
            .bind(now.as_millis());
        let held = Read::of(&held.fetch_all(&mut *inside).await?)?.found(&BTreeMap::new());
        found.rows.retain(|row| !wanted.contains_key(&row.id));
        let mut missed: BTreeSet<_> = wanted.into_keys().collect();
        for row in &held.rows {
            missed.remove(&row.id);
        }
        found = found.and(held);
        if !missed.is_empty() {
            // Somebody has just claimed them.
            let missed = Vec::from_iter(missed);
            found = found.and(self.seen(inside, outside, &missed, &[]).await?.found);
        }
        Ok(Stamped { now, found })
    }

    /// Writes new rows, and leaves out those of which an id or a live key is there: they are looked for before, as an insert
    /// that fails leaves a lock on what was in its way.
    async fn added(
        &self,
        inside: &mut MySqlConnection,
        outside: &mut MySqlConnection,
        rows: &[NewRow],
    ) -> Result<Stamped<Vec<Outcome>>, sqlx::Error> {
        let key_of = |row: &NewRow| Some((row.kind.clone(), row.key.clone()?));
        let ids = Vec::from_iter(rows.iter().map(|row| row.id));
        let keys = Vec::from_iter(rows.iter().filter_map(key_of));
        let Stamped { now, found } = self.seen(inside, outside, &ids, &keys).await?;
        let live = found.rows.iter().filter(|row| row.state.is_live());
        let mut taken_keys: BTreeSet<_> = live
            .filter_map(|row| Some((row.kind.clone(), row.key.clone()?)))
            .collect();
        let unreadable = found.unreadable.iter();
        taken_keys.extend(
            unreadable
                .clone()
                .filter(|row| row.is_live)
                .filter_map(|row| row.key.clone()),
        );
        let mut taken_ids: BTreeSet<_> = found.rows.iter().map(|row| row.id).collect();
        taken_ids.extend(unreadable.filter_map(|row| row.id));
        // Of twins the first.
        let mut free = Vec::with_capacity(rows.len());
        for (place, row) in rows.iter().enumerate() {
            let is_key_free = key_of(row).is_none_or(|key| !taken_keys.contains(&key));
            if is_key_free && taken_ids.insert(row.id) {
                taken_keys.extend(key_of(row));
                free.push(place);
            }
        }
        let (budget, too_big) = budget(
            inside,
            &self.server.sql,
            free.iter().map(|&place| size(&rows[place])),
        )
        .await?;
        if let Some(too_big) = too_big {
            return Err(too_big.into());
        }
        let mut written = BTreeSet::<usize>::new();
        for mut left in batches(&free, usize::MAX, budget, |&place| size(&rows[place])) {
            while !left.is_empty() {
                // As many as a statement is kept prepared for: those of a service may be logged, so values are no part of them.
                let widest = WIDTHS.into_iter().rfind(|width| *width <= left.len());
                let (places, later) = left.split_at(widest.unwrap_or(1));
                left = later;
                let new: Vec<_> = places.iter().map(|&place| &rows[place]).collect();
                match prepared(inside, "", &self.server.sql, &new, now).await {
                    Ok(()) => written.extend(places),
                    Err(error) if errors::is_duplicate(&error) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        let outcome = |place: usize| match written.contains(&place) {
            true => Outcome::Written,
            false => Outcome::Lost,
        };
        let found = (0..rows.len()).map(outcome).collect();
        Ok(Stamped { now, found })
    }

    /// Writes a part, or else each row by itself.
    async fn written(
        &self,
        connection: &mut MySqlConnection,
        part: &Part<'_>,
    ) -> Result<Vec<Outcome>, sqlx::Error> {
        let mut came = Vec::with_capacity(part.writes.len());
        if self.is_written(connection, part, &part.writes).await? {
            came.extend(part.writes.iter().map(|_| Outcome::Written));
            return Ok(came);
        }
        for write in &part.writes {
            came.push(match self.is_written(connection, part, &[*write]).await? {
                true => Outcome::Written,
                false => Outcome::Lost,
            });
        }
        Ok(came)
    }

    async fn is_written(
        &self,
        connection: &mut MySqlConnection,
        part: &Part<'_>,
        writes: &[&Write],
    ) -> Result<bool, sqlx::Error> {
        match write::write(connection, &self.server.sql, "", &part.form, writes).await {
            Ok(count) => Ok(usize::try_from(count) == Ok(writes.len())),
            Err(error) if errors::is_other(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// Of rows that were read twice the later version, and of the same the first.
fn latest(first: Found, second: Found) -> Found {
    let mut rows: BTreeMap<TaskId, Task> = first.rows.into_iter().map(|row| (row.id, row)).collect();
    for row in second.rows {
        let is_later = rows.get(&row.id).is_none_or(|first| first.version < row.version);
        if is_later {
            rows.insert(row.id, row);
        }
    }
    let known: BTreeSet<_> = first.unreadable.iter().map(|row| row.row.clone()).collect();
    let mut unreadable = first.unreadable;
    let more = second.unreadable.into_iter();
    unreadable.extend(more.filter(|row| !known.contains(&row.row)));
    Found {
        rows: rows.into_values().collect(),
        unreadable,
    }
}

#[async_trait]
impl Table for JoinedTable<'_> {
    fn name(&self) -> &'static str {
        NAME
    }

    async fn now(&self) -> Result<crate::Timestamp, Error> {
        let mut connection = self.connection.lock().await;
        let now = read::now(&mut connection, &self.server.sql).await;
        now.map_err(|error| self.server.failed(error))
    }

    async fn read(&self, ids: &[TaskId], keys: &[(Kind, Key)], _: Columns) -> Result<Stamped<Found>, Error> {
        joined!(self, |inside, outside| self.seen(inside, outside, ids, keys))
    }

    async fn hold(&self, ids: &[TaskId], keys: &[(Kind, Key)]) -> Result<Stamped<Found>, Error> {
        joined!(self, |inside, outside| self.held(inside, outside, ids, keys))
    }

    async fn claims(&self, ids: &[TaskId]) -> Result<Stamped<Found>, Error> {
        let read = async {
            let mut connection = self.connection.lock().await;
            let locked = &self.server.sql.locked_lean;
            let read = by_ids(&mut connection, locked, ids.iter().copied()).await?;
            let now = read::now(&mut connection, &self.server.sql).await?;
            let found = read.found(&BTreeMap::new());
            Ok(Stamped { now, found })
        };
        read.await.map_err(|error| self.server.failed(error))
    }

    async fn range(&self, asked: &[Range], columns: Columns) -> Result<Stamped<Vec<Found>>, Error> {
        let (sql, known) = (&self.server.sql, &self.server.known);
        joined!(self, |inside, _outside| ranges(
            inside, sql, known, asked, columns
        ))
    }

    async fn count(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let sql = &self.server.sql;
        joined!(self, |inside, _outside| read::count(
            inside,
            sql,
            (kind, state),
            spans,
            most
        ))
    }

    async fn insert(&self, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
        joined!(self, |inside, outside| self.added(inside, outside, rows))
    }

    async fn write(&self, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
        let mut came = BTreeMap::new();
        for part in parts(writes).map_err(|error| self.server.failed(error))? {
            let mut connection = self.connection.lock().await;
            let outcomes = self.written(&mut connection, &part).await;
            let outcomes = outcomes.map_err(|error| self.server.failed(error))?;
            came.extend(part.writes.iter().map(|write| write.row.id).zip(outcomes));
        }
        let outcome = |write: &Write| came.remove(&write.row.id).unwrap_or(Outcome::Lost);
        Ok(writes.iter().map(outcome).collect())
    }

    /// No transaction of a service's removes history.
    async fn remove(&self, _: &[State], _: usize) -> Result<u64, Error> {
        Ok(0)
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        let sql = &self.server.sql;
        joined!(self, |inside, _outside| read::kinds(
            inside, sql, state, after, limit
        ))
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        let sql = &self.server.sql;
        joined!(self, |inside, _outside| read::noted(inside, sql, id))
    }
}
