//! Statements on one connection: values as PostgreSQL has them, and back.

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Row, SqlStr, TypeInfo, ValueRef};
use uuid::Uuid;

use crate::TaskId;
use crate::store::sql::{Cells, Value};

/// Sends a statement with its values; gives its rows.
pub(super) async fn fetch(
    connection: &mut PgConnection,
    sql: SqlStr,
    values: &[Value],
    is_prepared: bool,
) -> Result<Vec<Cells>, sqlx::Error> {
    let mut query = sqlx::query(sql).persistent(is_prepared);
    for value in values {
        query = match value {
            Value::Int(int) => query.bind(*int),
            Value::Text(text) => query.bind(text.as_str()),
            Value::Bytes(bytes) => query.bind(bytes.as_slice()),
            Value::Id(id) => query.bind(uuid(*id)),
            Value::Ids(ids) => query.bind(ids.iter().copied().map(uuid).collect::<Vec<_>>()),
            Value::Ints(ints) => query.bind(ints.as_slice()),
            Value::Texts(texts) => query.bind(texts.as_slice()),
            Value::Blobs(blobs) => query.bind(blobs.as_slice()),
            Value::Null | Value::Odd => query.bind(None::<&str>),
        };
    }
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(cells).collect()
}

fn cells(row: &PgRow) -> Result<Cells, sqlx::Error> {
    let cell = |column| {
        let raw = row.try_get_raw(column)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        Ok(match raw.type_info().name() {
            "INT8" => Value::Int(row.try_get_unchecked(column)?),
            "INT4" => Value::Int(row.try_get_unchecked::<i32, _>(column)?.into()),
            "INT2" => Value::Int(row.try_get_unchecked::<i16, _>(column)?.into()),
            "BOOL" => Value::Int(row.try_get_unchecked::<bool, _>(column)?.into()),
            "TEXT" => Value::Text(row.try_get_unchecked(column)?),
            "BYTEA" => Value::Bytes(row.try_get_unchecked(column)?),
            "UUID" => Value::Bytes(row.try_get_unchecked::<Uuid, _>(column)?.into_bytes().into()),
            "UUID[]" => {
                let ids: Vec<Uuid> = row.try_get_unchecked(column)?;
                Value::Ids(ids.into_iter().map(TaskId::from).collect())
            }
            _ => Value::Odd,
        })
    };
    (0..row.len()).map(cell).collect()
}

fn uuid(id: TaskId) -> Uuid {
    Uuid::from_bytes(*id.as_bytes())
}

/// A text without the one character that PostgreSQL cannot keep.
pub(super) fn text(text: &str) -> String {
    text.replace('\0', "\u{FFFD}")
}

/// A name to ask for. None that is kept has the one character that PostgreSQL cannot keep: it is asked for as nothing.
pub(super) fn name(name: &str) -> Option<String> {
    (!name.contains('\0')).then(|| name.to_owned())
}
