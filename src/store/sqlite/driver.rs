//! Statements on one connection: values as SQLite has them, and back.

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqlStr, SqliteConnection, TypeInfo, ValueRef};

use crate::store::sql::codec::{self, Hex};
use crate::store::sql::{Cells, Driver, Value};

#[async_trait]
impl Driver for SqliteConnection {
    async fn fetch(&mut self, sql: SqlStr, values: &[Value]) -> Result<Vec<Cells>, sqlx::Error> {
        let mut query = sqlx::query(sql);
        for value in values {
            query = match value {
                Value::Int(int) => query.bind(*int),
                Value::Text(text) => query.bind(text.as_str()),
                Value::Bytes(bytes) => query.bind(bytes.as_slice()),
                Value::Id(id) => query.bind(&id.as_bytes()[..]),
                Value::Ids(ids) => {
                    query.bind(codec::json(&ids.iter().map(|id| Hex(*id)).collect::<Vec<_>>())?)
                }
                _ => query.bind(None::<i64>),
            };
        }
        let rows = query.fetch_all(self).await?;
        rows.iter().map(cells).collect()
    }
}

fn cells(row: &SqliteRow) -> Result<Cells, sqlx::Error> {
    let cell = |column| {
        let raw = row.try_get_raw(column)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        Ok(match raw.type_info().name() {
            "INTEGER" | "BOOLEAN" => Value::Int(row.try_get_unchecked(column)?),
            "BLOB" => Value::Bytes(row.try_get_unchecked(column)?),
            // What is no text was written by hand.
            "TEXT" => match String::from_utf8(row.try_get_unchecked(column)?) {
                Ok(text) => Value::Text(text),
                Err(other) => Value::Bytes(other.into_bytes()),
            },
            _ => Value::Odd,
        })
    };
    (0..row.len()).map(cell).collect()
}
