//! A row as MySQL has it, and back.

use serde::{Serialize, Serializer};
use sqlx::Row;
use sqlx::mysql::MySqlRow;

use crate::backend::Wake;
use crate::store::Pending;
use crate::store::sql::codec::{Garbled, read_headers, state};
pub(super) use crate::store::sql::codec::{Hex, headers, json, limit, number};
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

/// The time in the column after those of a row.
pub(super) const TASK_NOW: usize = 20;
/// The time in the column after those of a look.
pub(super) const LOOK_NOW: usize = 7;
/// How long the payload is, in the column after that.
const LOOK_SIZE: usize = 8;

/// The task of a row that was read with all columns, in their order.
pub(super) fn task(row: &MySqlRow) -> Result<Task, sqlx::Error> {
    let perhaps = |column: usize| -> Result<Option<Timestamp>, sqlx::Error> {
        let millis: Option<i64> = row.try_get(column)?;
        Ok(millis.map(Timestamp::from_millis))
    };
    Ok(Task {
        id: id(row, 0)?,
        kind: kind(row, 1)?,
        key: key(row, 2)?,
        state: state(row.try_get::<u8, _>(3)?.into())?,
        version: row.try_get(4)?,
        due_at: time(row, 5)?,
        planned_at: time(row, 6)?,
        wake_at: perhaps(7)?,
        attempt: row.try_get(8)?,
        started: row.try_get::<i64, _>(9)? != 0,
        stalls: row.try_get(10)?,
        max_attempts: row.try_get(11)?,
        hop: row.try_get(12)?,
        created_at: time(row, 13)?,
        updated_at: time(row, 14)?,
        finished_at: perhaps(15)?,
        owner: row.try_get(16)?,
        last_error: row.try_get(17)?,
        headers: read_headers(row.try_get(18)?)?,
        payload: row.try_get(19)?,
    })
}

/// How long the payload of a row is that was looked at.
pub(super) fn size(row: &MySqlRow) -> Result<usize, sqlx::Error> {
    let size: u64 = row.try_get(LOOK_SIZE)?;
    Ok(usize::try_from(size).unwrap_or(usize::MAX))
}

/// What tells of a row whether a wake-up or a claim still holds: its state, and the wake-up that would.
pub(super) fn look(row: &MySqlRow) -> Result<(State, Pending), sqlx::Error> {
    let wake = Wake {
        id: id(row, 0)?,
        kind: kind(row, 1)?,
        version: row.try_get(2)?,
    };
    let pending = Pending {
        wake,
        key: key(row, 4)?,
        due_at: time(row, 5)?,
        planned_at: time(row, 6)?,
    };
    Ok((state(row.try_get::<u8, _>(3)?.into())?, pending))
}

/// The id in a column.
pub(super) fn id(row: &MySqlRow, column: usize) -> Result<TaskId, sqlx::Error> {
    let bytes: &[u8] = row.try_get(column)?;
    let bytes = bytes.try_into().map_err(|_| Garbled::Id)?;
    Ok(TaskId::from_bytes(bytes))
}

/// The id in a column, if there is one.
pub(super) fn some_id(row: &MySqlRow, column: usize) -> Result<Option<TaskId>, sqlx::Error> {
    let bytes: Option<&[u8]> = row.try_get(column)?;
    bytes.map(|_| id(row, column)).transpose()
}

/// The kind in a column.
pub(super) fn kind(row: &MySqlRow, column: usize) -> Result<Kind, sqlx::Error> {
    Ok(text("kind", row.try_get(column)?).map(Kind::from)?)
}

/// The key in a column, if there is one.
pub(super) fn key(row: &MySqlRow, column: usize) -> Result<Option<Key>, sqlx::Error> {
    let key: Option<&[u8]> = row.try_get(column)?;
    Ok(key.map(|key| text("key", key).map(Key::from)).transpose()?)
}

/// The time in a column.
pub(super) fn time(row: &MySqlRow, column: usize) -> Result<Timestamp, sqlx::Error> {
    row.try_get(column).map(Timestamp::from_millis)
}

fn text<'a>(name: &'static str, bytes: &'a [u8]) -> Result<&'a str, Garbled> {
    std::str::from_utf8(bytes).map_err(|_| Garbled::Text(name))
}

/// A kind or key within JSON.
pub(super) struct HexText<'a>(pub(super) &'a str);

impl Serialize for HexText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let digit = |half: u8| char::from_digit(half.into(), 16).unwrap_or_default();
        let digits = self
            .0
            .bytes()
            .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)]);
        serializer.serialize_str(&digits.collect::<String>())
    }
}

/// Ids as a JSON array, in their order, so that all lock rows in the same one.
pub(super) fn ids(ids: impl IntoIterator<Item = TaskId>) -> Result<String, sqlx::Error> {
    let mut ids: Vec<_> = ids.into_iter().collect();
    ids.sort_unstable();
    ids.dedup();
    json(&ids.into_iter().map(Hex).collect::<Vec<_>>())
}
