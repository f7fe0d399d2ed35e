//! A row as PostgreSQL has it, and back.

use std::time::Duration;

use sqlx::Row;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use crate::backend::Wake;
use crate::store::Pending;
use crate::store::sql::codec::{Garbled, read_headers, state};
pub(super) use crate::store::sql::codec::{headers, limit, number};
use crate::timestamp::millis;
use crate::{Key, Kind, Task, TaskId, Timestamp};

/// The task of a row that was read with all columns, in their order, after `before` others.
pub(super) fn task(row: &PgRow, before: usize) -> Result<Task, sqlx::Error> {
    let number = |column: usize, name| {
        let number: i64 = row.try_get(before + column)?;
        u32::try_from(number).map_err(|_| sqlx::Error::from(Garbled::Value(name, number)))
    };
    let time = |column: usize| row.try_get(before + column).map(Timestamp::from_millis);
    let perhaps = |column: usize| -> Result<Option<Timestamp>, sqlx::Error> {
        let millis: Option<i64> = row.try_get(before + column)?;
        Ok(millis.map(Timestamp::from_millis))
    };
    let limit: Option<i64> = row.try_get(before + 11)?;
    Ok(Task {
        id: id(row, before)?,
        kind: kind(row, before + 1)?,
        key: row.try_get::<Option<&str>, _>(before + 2)?.map(Key::from),
        state: state(row.try_get::<i16, _>(before + 3)?.into())?,
        version: version(row, before + 4)?,
        due_at: time(5)?,
        planned_at: time(6)?,
        wake_at: perhaps(7)?,
        attempt: number(8, "attempt")?,
        started: row.try_get(before + 9)?,
        stalls: number(10, "stalls")?,
        max_attempts: limit.map(|_| number(11, "max_attempts")).transpose()?,
        hop: number(12, "hop")?,
        created_at: time(13)?,
        updated_at: time(14)?,
        finished_at: perhaps(15)?,
        owner: row.try_get(before + 16)?,
        last_error: row.try_get(before + 17)?,
        headers: read_headers(row.try_get(before + 18)?)?,
        payload: row.try_get(before + 19)?,
    })
}

/// What makes sense of rows, each with its id in a column. One that somebody has edited until it cannot be read, or that
/// is of a later release, is left alone: it must not keep the others from running.
pub(super) fn sound<T>(row: &PgRow, id: usize, read: Result<T, sqlx::Error>) -> Option<T> {
    read.inspect_err(|error| {
        let id = self::id(row, id).ok();
        tracing::error!(
            store = super::NAME, ?id, %error,
            "the row of a task cannot be read, so it does not run, and holds up no other; repair or remove it"
        );
    })
    .ok()
}

/// A row that is not due yet, from the columns of its id, kind, key, version, due and planned time.
pub(super) fn pending(row: &PgRow, columns: [usize; 6]) -> Result<Pending, sqlx::Error> {
    let [id, kind, key, version, due_at, planned_at] = columns;
    let wake = Wake {
        id: self::id(row, id)?,
        kind: self::kind(row, kind)?,
        version: self::version(row, version)?,
    };
    Ok(Pending {
        wake,
        key: row.try_get::<Option<&str>, _>(key)?.map(Key::from),
        due_at: Timestamp::from_millis(row.try_get(due_at)?),
        planned_at: Timestamp::from_millis(row.try_get(planned_at)?),
    })
}

/// The id in a column.
pub(super) fn id(row: &PgRow, column: usize) -> Result<TaskId, sqlx::Error> {
    Ok(row.try_get::<Uuid, _>(column)?.into())
}

/// The kind in a column.
pub(super) fn kind(row: &PgRow, column: usize) -> Result<Kind, sqlx::Error> {
    Ok(Kind::from(row.try_get::<&str, _>(column)?))
}

/// The version in a column.
pub(super) fn version(row: &PgRow, column: usize) -> Result<u64, sqlx::Error> {
    let number: i64 = row.try_get(column)?;
    Ok(u64::try_from(number).map_err(|_| Garbled::Value("version", number))?)
}

/// An id as a column has it.
pub(super) fn uuid(id: TaskId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

/// Ids as a parameter has them.
pub(super) fn uuids(ids: impl IntoIterator<Item = TaskId>) -> Vec<Uuid> {
    ids.into_iter().map(uuid).collect()
}

/// A version as a column has it. Those read from a row fit.
pub(super) fn stored_version(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

/// A span in milliseconds, no longer than all time, so that a time and a span can be added.
pub(super) fn span(span: Duration) -> i64 {
    millis(span).min(Timestamp::MAX.as_millis())
}

/// A text without the one character that PostgreSQL cannot keep.
pub(super) fn text(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

/// A name to ask for. None that is kept has the one character that PostgreSQL cannot keep: it is asked for as nothing.
pub(super) fn name(name: &str) -> Option<String> {
    (!name.contains('\0')).then(|| name.to_owned())
}
