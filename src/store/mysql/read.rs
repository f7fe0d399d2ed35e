//! Reads rows on one connection, and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{MySqlConnection, Row};

use super::cells::{self, HexText, NOW, SIZE, cells};
use super::sql::{Sql, query};
use crate::store::sql::codec::{json, limit, number};
use crate::store::sql::{Cells, found};
use crate::store::table::{Columns, Found};
use crate::store::{Noted, Stamped};
use crate::task::timestamp::millis;
use crate::{Key, Kind, State, TaskId, Timestamp};

/// Kinds and keys, each by the ids of the rows that may be meant by it.
type OfKeys = BTreeMap<TaskId, (Kind, Key)>;

/// Rows as they were read: the columns of each, and how long its payload is.
#[derive(Default)]
pub(super) struct Read {
    pub(super) rows: Vec<(Cells, usize)>,
    /// When the last of them was.
    pub(super) now: Option<Timestamp>,
}

impl Read {
    pub(super) fn of(found: &[MySqlRow]) -> Result<Self, sqlx::Error> {
        let mut read = Self::default();
        for row in found {
            read.now = read.now.max(Some(cells::time(row, NOW)?));
            let is_there = row.try_get::<Option<&[u8]>, _>(0)?.is_some();
            if is_there {
                let size: u64 = row.try_get(SIZE)?;
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                read.rows.push((cells(row)?, size));
            }
        }
        Ok(read)
    }

    /// What was found.
    pub(super) fn found(self, of_keys: &OfKeys) -> Found {
        let rows = self.rows.into_iter().map(|(cells, _)| cells).collect();
        found(rows, |cells| match cells.first() {
            Some(crate::store::sql::Value::Bytes(id)) => {
                let id = TaskId::from_bytes(id.as_slice().try_into().ok()?);
                of_keys.get(&id).cloned()
            }
            _ => None,
        })
    }
}

/// The time by the server's clock.
pub(super) async fn now(connection: &mut MySqlConnection, sql: &Sql) -> Result<Timestamp, sqlx::Error> {
    let row = query(&sql.now).fetch_one(connection).await?;
    cells::time(&row, 0)
}

/// The rows of ids by one of the statements that take them.
pub(super) async fn by_ids(
    connection: &mut MySqlConnection,
    statement: &std::sync::Arc<str>,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Read, sqlx::Error> {
    let query = query(statement).bind(cells::ids(ids)?);
    Read::of(&query.fetch_all(connection).await?)
}

/// The ids of the rows that kinds and keys may mean, the live and the newest.
pub(super) async fn of_keys(
    connection: &mut MySqlConnection,
    sql: &Sql,
    keys: &[(Kind, Key)],
) -> Result<OfKeys, sqlx::Error> {
    if keys.is_empty() {
        return Ok(OfKeys::new());
    }
    let names: Vec<_> = keys
        .iter()
        .map(|(kind, key)| [HexText(kind.as_str()), HexText(key.as_str())])
        .collect();
    let query = query(&sql.look_keys).bind(json(&names)?);
    let rows = query.fetch_all(connection).await?;
    let mut of_keys = OfKeys::new();
    for (row, key) in rows.iter().zip(keys) {
        for column in 0..2 {
            of_keys.extend(cells::id(row, column)?.map(|id| (id, key.clone())));
        }
    }
    Ok(of_keys)
}

/// The rows of ids, and of kinds and keys.
pub(super) async fn read(
    connection: &mut MySqlConnection,
    sql: &Sql,
    ids: &[TaskId],
    keys: &[(Kind, Key)],
    columns: Columns,
) -> Result<Stamped<Found>, sqlx::Error> {
    let of_keys = of_keys(connection, sql, keys).await?;
    let statement = match columns {
        Columns::All => &sql.by_ids,
        Columns::Lean => &sql.by_ids_lean,
    };
    let all: BTreeSet<_> = ids.iter().chain(of_keys.keys()).copied().collect();
    let mut read = Read::default();
    if !all.is_empty() {
        read = by_ids(connection, statement, all).await?;
    }
    let now = match read.now {
        Some(now) => now,
        None => now(connection, sql).await?,
    };
    let found = read.found(&of_keys);
    Ok(Stamped { now, found })
}

/// How many rows of a kind and a state are due within each of these spans, up to `most`.
pub(super) async fn count(
    connection: &mut MySqlConnection,
    sql: &Sql,
    (kind, state): (&Kind, State),
    spans: &[Duration],
    most: usize,
) -> Result<Stamped<Vec<usize>>, sqlx::Error> {
    let spans: Vec<_> = spans.iter().copied().map(span).collect();
    let query = query(&sql.count)
        .bind(json(&spans)?)
        .bind(kind.as_str().as_bytes())
        .bind(number(state))
        .bind(spans.iter().max().copied())
        .bind(limit(most));
    let counts = query.fetch_all(&mut *connection).await?;
    let now = match counts.first() {
        Some(first) => cells::time(first, 0)?,
        None => now(connection, sql).await?,
    };
    let count = |row: &MySqlRow| Ok(usize::try_from(row.try_get::<i64, _>(1)?).unwrap_or(0));
    let found = counts.iter().map(count).collect::<Result<_, sqlx::Error>>()?;
    Ok(Stamped { now, found })
}

/// A span in milliseconds, no longer than all time, so that a time and a span can be added.
pub(super) fn span(span: Duration) -> i64 {
    millis(span).min(Timestamp::MAX.as_millis())
}

/// The kinds after one of which there are rows in a state, but for those that are no text.
pub(super) async fn kinds(
    connection: &mut MySqlConnection,
    sql: &Sql,
    state: State,
    after: Option<&Kind>,
    most: usize,
) -> Result<Vec<Kind>, sqlx::Error> {
    let mut kinds = Vec::new();
    let mut last: Vec<u8> = after.map_or("", Kind::as_str).into();
    while kinds.len() < most {
        let query = query(&sql.next_kind).bind(number(state)).bind(last);
        let Some(next) = query.fetch_optional(&mut *connection).await? else {
            break;
        };
        last = next.try_get(0)?;
        kinds.extend(std::str::from_utf8(&last).ok().map(Kind::from));
    }
    Ok(kinds)
}

/// What is noted of a row.
pub(super) async fn noted(
    connection: &mut MySqlConnection,
    sql: &Sql,
    id: TaskId,
) -> Result<Noted, sqlx::Error> {
    let query = query(&sql.noted).bind(&id.as_bytes()[..]);
    let Some(row) = query.fetch_optional(connection).await? else {
        return Ok(Noted::default());
    };
    let (history, sent) = (row.try_get(0)?, row.try_get(1)?);
    Ok(Noted { history, sent })
}
