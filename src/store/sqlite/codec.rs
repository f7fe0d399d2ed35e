//! A row as SQLite has it, and back.

use sqlx::Row;
use sqlx::sqlite::SqliteRow;

use crate::backend::Wake;
use crate::store::Pending;
use crate::store::sql::codec::{Garbled, read_headers, state};
pub(super) use crate::store::sql::codec::{Hex, headers, json, limit, number};
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

/// How many columns all columns are; what a statement adds comes after them.
pub(super) const COLUMNS: usize = 20;

/// The task of a row that was read with all columns, in their order.
pub(super) fn task(row: &SqliteRow) -> Result<Task, sqlx::Error> {
    let number = |column: usize, name| {
        let number: i64 = row.try_get(column)?;
        u32::try_from(number).map_err(|_| sqlx::Error::from(Garbled::Value(name, number)))
    };
    let time = |column: usize| row.try_get(column).map(Timestamp::from_millis);
    let perhaps = |column: usize| -> Result<Option<Timestamp>, sqlx::Error> {
        let millis: Option<i64> = row.try_get(column)?;
        Ok(millis.map(Timestamp::from_millis))
    };
    let limit: Option<i64> = row.try_get(11)?;
    Ok(Task {
        id: id(row, 0)?,
        kind: kind(row, 1)?,
        key: row.try_get::<Option<&str>, _>(2)?.map(Key::from),
        state: state(row.try_get(3)?)?,
        version: read_version(row.try_get(4)?)?,
        due_at: time(5)?,
        planned_at: time(6)?,
        wake_at: perhaps(7)?,
        attempt: number(8, "attempt")?,
        started: row.try_get(9)?,
        stalls: number(10, "stalls")?,
        max_attempts: limit.map(|_| number(11, "max_attempts")).transpose()?,
        hop: number(12, "hop")?,
        created_at: time(13)?,
        updated_at: time(14)?,
        finished_at: perhaps(15)?,
        owner: row.try_get(16)?,
        last_error: row.try_get(17)?,
        headers: read_headers(row.try_get(18)?)?,
        payload: row.try_get(19)?,
    })
}

/// What tells of a row whether a wake-up or a claim still holds: its state, the wake-up that would, and how long its
/// payload is.
pub(super) fn look(row: &SqliteRow) -> Result<(State, Pending, usize), sqlx::Error> {
    let wake = Wake {
        id: id(row, 0)?,
        kind: kind(row, 1)?,
        version: read_version(row.try_get(2)?)?,
    };
    let pending = Pending {
        wake,
        key: row.try_get::<Option<&str>, _>(4)?.map(Key::from),
        due_at: Timestamp::from_millis(row.try_get(5)?),
        planned_at: Timestamp::from_millis(row.try_get(6)?),
    };
    Ok((state(row.try_get(3)?)?, pending, length(row, 7)?))
}

/// The kind in a column.
pub(super) fn kind(row: &SqliteRow, column: usize) -> Result<Kind, sqlx::Error> {
    Ok(Kind::from(row.try_get::<&str, _>(column)?))
}

/// The id in a column.
pub(super) fn id(row: &SqliteRow, column: usize) -> Result<TaskId, sqlx::Error> {
    let bytes: &[u8] = row.try_get(column)?;
    let bytes = bytes.try_into().map_err(|_| Garbled::Id)?;
    Ok(TaskId::from_bytes(bytes))
}

/// The id in the first column as the file has it, of whatever length.
pub(super) fn raw_id(row: &SqliteRow) -> Vec<u8> {
    row.try_get_unchecked(0).unwrap_or_default()
}

/// How long something is, in a column.
pub(super) fn length(row: &SqliteRow, column: usize) -> Result<usize, sqlx::Error> {
    let length: i64 = row.try_get(column)?;
    Ok(usize::try_from(length).unwrap_or(usize::MAX))
}

fn read_version(number: i64) -> Result<u64, Garbled> {
    u64::try_from(number).map_err(|_| Garbled::Value("version", number))
}

/// Ids as the file has them, as a JSON array, in the digits of SQLite's `hex`.
pub(super) fn raw_ids<'a>(ids: impl Iterator<Item = &'a Vec<u8>>) -> Result<String, sqlx::Error> {
    json(&ids.map(|id| hex(id)).collect::<Vec<_>>())
}

/// Bytes in the digits of SQLite's `hex`.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

/// Ids as a JSON array.
pub(super) fn ids(ids: impl IntoIterator<Item = TaskId>) -> Result<String, sqlx::Error> {
    let ids: Vec<_> = ids.into_iter().map(Hex).collect();
    json(&ids)
}
