//! Values as PostgreSQL has them, and back.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{Postgres, Row, TypeInfo, ValueRef};
use uuid::Uuid;

use crate::store::sql::{Cells, Value};
use crate::task::timestamp::millis;
use crate::{TaskId, Timestamp};

/// A statement with its values.
pub(super) type Query<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

/// The first so many columns of a row.
pub(super) fn cells(row: &PgRow, count: usize) -> Result<Cells, sqlx::Error> {
    let cell = |column| {
        let raw = row.try_get_raw(column)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        Ok(match raw.type_info().name() {
            "INT8" => Value::Int(row.try_get_unchecked(column)?),
            "INT2" => Value::Int(row.try_get_unchecked::<i16, _>(column)?.into()),
            "BOOL" => Value::Int(row.try_get_unchecked::<bool, _>(column)?.into()),
            "TEXT" => Value::Text(row.try_get_unchecked(column)?),
            "BYTEA" => Value::Bytes(row.try_get_unchecked(column)?),
            "UUID" => Value::Bytes(row.try_get_unchecked::<Uuid, _>(column)?.into_bytes().into()),
            _ => Value::Odd,
        })
    };
    (0..count).map(cell).collect()
}

/// The id in a column.
pub(super) fn id(row: &PgRow, column: usize) -> Result<TaskId, sqlx::Error> {
    Ok(row.try_get::<Uuid, _>(column)?.into())
}

/// The time in a column.
pub(super) fn time(row: &PgRow, column: usize) -> Result<Timestamp, sqlx::Error> {
    row.try_get(column).map(Timestamp::from_millis)
}

/// An id as a column has it.
pub(super) fn uuid(id: TaskId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

/// Ids as a parameter has them.
pub(super) fn uuids(ids: impl IntoIterator<Item = TaskId>) -> Vec<Uuid> {
    ids.into_iter().map(uuid).collect()
}

/// A version as a column has it: no row has one that is no number there.
pub(super) fn version(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(-1)
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
