//! The table as a transaction of the service's own has it.
//!
//! What such a transaction sees may be as old as its first statement, while what it writes meets rows as they are. So rows are
//! looked at by a connection of the store's own as well, which sees what is committed. What the transaction itself has done
//! to a row counts, as that has a later version.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use async_trait::async_trait;
use sqlx::{MySqlConnection, SqlStr};
use tokio::sync::Mutex;

use super::insert::{MOST, prepared};
use super::session::{OwnSession, in_words_of_mysql, limits};
use super::sql::WIDTHS;
use super::write::{self, groups};
use super::{NAME, Server, claim, errors};
use crate::store::batched_calls::CALLS;
use crate::store::rules::lease_has_ended;
use crate::store::sql::codec::{Hex, hex, json};
use crate::store::sql::{
    Answered, Cells, Driver, Limits, Query, RowError, RowsRead, Session, Value, read_by,
};
use crate::store::table::{Columns, Found, Outcome, Write};
use crate::store::{NewRow, Stamped};
use crate::{Error, Key, Kind, State, Task, TaskId, Timestamp};

/// The service's connection, and those of the store.
pub(super) struct JoinedSession<'t> {
    connection: Mutex<&'t mut MySqlConnection>,
    server: &'t Server,
    own: OwnSession,
}

impl<'t> JoinedSession<'t> {
    pub(super) fn new(server: &'t Arc<Server>, connection: &'t mut MySqlConnection) -> Self {
        let connection = Mutex::new(connection);
        let own = OwnSession::new(server, false);
        Self {
            connection,
            server,
            own,
        }
    }

    /// Rows as they are, committed or the transaction's own; none is locked.
    async fn seen(&self, ids: &[TaskId], keys: &[(Kind, Key)]) -> Answered<Found> {
        let mut inside = read_by(self, ids, keys, Columns::All).await?.found;
        let mut all: BTreeSet<_> = ids.iter().copied().collect();
        all.extend(inside.rows.iter().map(|row| row.id));
        all.extend(inside.unreadable.iter().filter_map(|row| row.id));
        let ids = Vec::from_iter(all.iter().copied());
        let Stamped { now, found } = self.own.read(&ids, keys, Columns::All).await?;
        // What only others find by its key may have been changed by the transaction as well.
        let missed = found.rows.iter().map(|row| row.id).filter(|id| !all.contains(id));
        let missed = Vec::from_iter(missed);
        inside = inside.and(read_by(self, &missed, &[], Columns::All).await?.found);
        // What the transaction alone sees is its own, or was removed since its first statement.
        let mut there: BTreeSet<_> = ids_of(&found).collect();
        let alone = Vec::from_iter(ids_of(&inside).filter(|id| !there.contains(id)));
        if !alone.is_empty() {
            there.extend(ids_of(&self.own.written(&alone).await?));
            inside.rows.retain(|row| there.contains(&row.id));
            inside
                .unreadable
                .retain(|row| row.id.is_none_or(|id| there.contains(&id)));
        }
        let found = latest(found, inside);
        Ok(Stamped { now, found })
    }

    async fn is_written(&self, writes: &[&Write]) -> Result<bool, sqlx::Error> {
        let mut connection = self.connection.lock().await;
        match write::write(&mut connection, &self.server.sql, "", writes).await {
            Ok(count) => Ok(usize::try_from(count) == Ok(writes.len())),
            Err(error) if errors::is_other(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The ids of rows, of the unreadable ones where that is readable.
fn ids_of(found: &Found) -> impl Iterator<Item = TaskId> {
    let unreadable = found.unreadable.iter().filter_map(|row| row.id);
    found.rows.iter().map(|row| row.id).chain(unreadable)
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
impl Session for JoinedSession<'_> {
    in_words_of_mysql!();

    fn classify(&self, _: &sqlx::Error) -> Option<RowError> {
        None
    }

    async fn fetch(&self, sql: SqlStr, values: Vec<Value>) -> Result<Vec<Cells>, sqlx::Error> {
        self.connection.lock().await.fetch(sql, &values).await
    }

    async fn now(&self) -> Result<Timestamp, sqlx::Error> {
        claim::now(*self.connection.lock().await, &self.server.sql).await
    }

    async fn read(&self, ids: &[TaskId], keys: &[(Kind, Key)], _: Columns) -> Answered<Found> {
        self.seen(ids, keys).await
    }

    /// Rows, with those locked that may be changed. A lock on a row that runs would keep its worker from renewing its lease
    /// until the transaction ends, and one on a row that is not there, at `REPEATABLE READ`, others from adding rows: so rows
    /// are looked at before.
    async fn hold(&self, ids: &[TaskId], keys: &[(Kind, Key)]) -> Answered<Found> {
        let Stamped { now, mut found } = self.seen(ids, keys).await?;
        // Each with the version at which its lease has ended.
        let wanted = found.rows.iter().filter_map(|row| match row.state {
            State::Scheduled | State::Dead => Some((row.id, None)),
            _ => lease_has_ended(row, now).then_some((row.id, Some(row.version))),
        });
        let wanted: BTreeMap<_, _> = wanted.collect();
        if wanted.is_empty() {
            return Ok(Stamped { now, found });
        }
        let values: Vec<_> = wanted.iter().map(|(&id, ended)| (Hex(id), ended)).collect();
        let values = vec![Value::Text(json(&values)?), Value::of_time(Some(now))];
        let held = RowsRead::of(self.fetch(self.server.sql.held.clone(), values).await?).found;
        found.rows.retain(|row| !wanted.contains_key(&row.id));
        let mut missed: BTreeSet<_> = wanted.into_keys().collect();
        for row in &held.rows {
            missed.remove(&row.id);
        }
        found = found.and(held);
        if !missed.is_empty() {
            // A worker has just claimed them.
            found = found.and(self.seen(&Vec::from_iter(missed), &[]).await?.found);
        }
        Ok(Stamped { now, found })
    }

    async fn hold_for_worker(&self, ids: &[TaskId]) -> Answered<Found> {
        let locked = self.server.sql.locked_lean.clone();
        let rows = self.fetch(locked, vec![Value::Ids(ids.to_vec())]).await?;
        let (now, found) = (self.now().await?, RowsRead::of(rows).found);
        Ok(Stamped { now, found })
    }

    async fn limits(&self, bytes: usize) -> Result<Limits, sqlx::Error> {
        limits(self, &self.server.sql, bytes).await
    }

    /// Writes new rows, and leaves out those of which an id or a live key is there: they are looked for before, as an insert
    /// that fails leaves a lock on what was in its way.
    async fn insert(&self, rows: Vec<&NewRow>, now: Option<Timestamp>) -> Answered<Vec<Outcome>> {
        let key_of = |row: &NewRow| Some((row.kind.clone(), row.key.clone()?));
        let ids = Vec::from_iter(rows.iter().map(|row| row.id));
        let keys = Vec::from_iter(rows.iter().filter_map(|row| key_of(row)));
        let Stamped { now: seen_at, found } = self.seen(&ids, &keys).await?;
        let now = now.unwrap_or(seen_at);
        let unreadable = found.unreadable.iter();
        let live = found.rows.iter().filter(|row| row.state.is_live());
        let mut taken_keys: BTreeSet<_> = live
            .filter_map(|row| Some((row.kind.clone(), row.key.clone()?)))
            .chain(
                unreadable
                    .clone()
                    .filter(|row| row.is_live)
                    .filter_map(|row| row.key.clone()),
            )
            .collect();
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
        let mut written = BTreeSet::<usize>::new();
        let mut left = &free[..];
        while !left.is_empty() {
            // As many as a statement is kept prepared for: those of a service may be logged, so values are no part of them.
            let widest = WIDTHS.into_iter().rfind(|width| *width <= left.len());
            let (places, later) = left.split_at(widest.unwrap_or(1));
            left = later;
            let new: Vec<_> = places.iter().map(|&place| rows[place]).collect();
            let mut connection = self.connection.lock().await;
            match prepared(&mut connection, "", &self.server.sql, &new, now).await {
                Ok(()) => written.extend(places),
                Err(error) if errors::is_duplicate(&error) => {}
                Err(error) => return Err(error),
            }
        }
        let found = (0..rows.len()).map(|place| Outcome::of(written.contains(&place)));
        let found = found.collect();
        Ok(Stamped { now, found })
    }

    /// Writes rows together, or else each by itself.
    async fn write(&self, writes: Vec<&Write>) -> Result<Vec<Outcome>, sqlx::Error> {
        if self.is_written(&writes).await? {
            return Ok(writes.iter().map(|_| Outcome::Written).collect());
        }
        let mut came = Vec::with_capacity(writes.len());
        for write in writes {
            came.push(Outcome::of(self.is_written(&[write]).await?));
        }
        Ok(came)
    }
}
