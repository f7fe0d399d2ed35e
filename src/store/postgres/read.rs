//! Reads rows by their ids and keys, and what statements tell of rows.

use std::collections::BTreeSet;

use sqlx::SqlStr;
use sqlx::postgres::PgRow;

use super::codec::{self, cells, name, uuids};
use super::session::Session;
use super::sql::COLUMNS;
use super::table::PgTable;
use crate::store::Stamped;
use crate::store::sql::{Cells, Value, found};
use crate::store::table::Found;
use crate::{Error, Key, Kind, TaskId, Timestamp};

impl<S: Session> PgTable<S> {
    async fn by_ids(&self, statement: &SqlStr, ids: &[TaskId], is_held: bool) -> Result<Told, sqlx::Error> {
        let ids = uuids(ids.iter().copied());
        let make = || sqlx::query(statement.clone()).bind(&*ids);
        let rows = match is_held {
            false => self.0.rows(&make).await?,
            true => self.0.held(&make).await?,
        };
        Told::of(&rows)
    }

    async fn by_keys(
        &self,
        statement: &SqlStr,
        keys: &[(Kind, Key)],
        is_held: bool,
    ) -> Result<Told, sqlx::Error> {
        let names = keys
            .iter()
            .map(|(kind, key)| (name(kind.as_str()), name(key.as_str())));
        let (kinds, names): (Vec<_>, Vec<_>) = names.unzip();
        let make = || sqlx::query(statement.clone()).bind(&*kinds).bind(&*names);
        let rows = match is_held {
            false => self.0.rows(&make).await?,
            true => self.0.held(&make).await?,
        };
        Told::of(&rows)
    }

    /// Reads by one of two statements, or both, the first of which is for ids.
    pub(super) async fn of_both(
        &self,
        [of_ids, of_keys]: [&SqlStr; 2],
        ids: &[TaskId],
        keys: &[(Kind, Key)],
        is_held: bool,
    ) -> Result<Stamped<Found>, Error> {
        let read = async {
            let mut all = Stamped {
                now: Timestamp::MIN,
                found: Found::default(),
            };
            if !ids.is_empty() || keys.is_empty() {
                let told = self.by_ids(of_ids, ids, is_held).await?;
                all = told.stamped(|_| None);
            }
            if !keys.is_empty() {
                let told = self.by_keys(of_keys, keys, is_held).await?;
                let key_of = |place: i64| keys.get(usize::try_from(place - 1).ok()?).cloned();
                let Stamped { now, found } = told.stamped(key_of);
                all = Stamped {
                    now,
                    found: all.found.and(found),
                };
            }
            Ok(all)
        };
        read.await.map_err(|error| self.failed(error))
    }
}

/// The time of an answer, and its rows.
pub(super) struct Told {
    pub(super) now: Timestamp,
    pub(super) rows: Vec<Cells>,
}

impl Told {
    pub(super) fn of(rows: &[PgRow]) -> Result<Self, sqlx::Error> {
        let now = codec::time(rows.first().ok_or(sqlx::Error::RowNotFound)?, COLUMNS)?;
        let rows = rows.iter().map(|row| cells(row, COLUMNS));
        let mut rows = rows.collect::<Result<Vec<_>, _>>()?;
        // One of nothing but the time.
        rows.retain(|cells| cells.first() != Some(&Value::Null));
        Ok(Self { now, rows })
    }

    /// What was found; each row is known by its number to be of a kind and key, or not.
    pub(super) fn stamped(self, key_of: impl Fn(i64) -> Option<(Kind, Key)>) -> Stamped<Found> {
        let Self { now, rows } = self;
        let found = found(rows, |cells| key_of(number_of(cells)));
        Stamped { now, found }
    }
}

/// The number of what a row was asked for by.
pub(super) fn number_of(cells: &Cells) -> i64 {
    match cells.last() {
        Some(Value::Int(number)) => *number,
        _ => -1,
    }
}

/// The ids in the first column.
pub(super) fn ids(rows: &[PgRow]) -> Result<BTreeSet<TaskId>, sqlx::Error> {
    rows.iter().map(|row| codec::id(row, 0)).collect()
}
