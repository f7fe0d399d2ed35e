//! Statements on one connection: values as MySQL has them, and back.

use std::collections::BTreeSet;

use async_trait::async_trait;
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{Column, MySql, MySqlConnection, Row, SqlStr, TypeInfo, ValueRef};

use crate::TaskId;
use crate::store::sql::codec::{Hex, json};
use crate::store::sql::{Cells, Driver, Value};

/// The columns of texts, whether the server calls them so or bytes.
const TEXTS: [&str; 6] = ["kind", "key", "owner", "last_error", "headers", "history"];

#[async_trait]
impl Driver for MySqlConnection {
    async fn fetch(&mut self, sql: SqlStr, values: &[Value]) -> Result<Vec<Cells>, sqlx::Error> {
        let rows = query(sql, values)?.fetch_all(self).await?;
        rows.iter().map(cells).collect()
    }
}

/// Sends a statement that changes rows; says how many it has found.
pub(super) async fn execute(
    connection: &mut MySqlConnection,
    sql: SqlStr,
    values: &[Value],
) -> Result<u64, sqlx::Error> {
    Ok(query(sql, values)?.execute(connection).await?.rows_affected())
}

fn query(
    sql: SqlStr,
    values: &[Value],
) -> Result<sqlx::query::Query<'_, MySql, MySqlArguments>, sqlx::Error> {
    let mut query = sqlx::query(sql);
    for value in values {
        query = match value {
            Value::Int(int) => query.bind(*int),
            Value::Text(text) => query.bind(text.as_str()),
            Value::Bytes(bytes) => query.bind(bytes.as_slice()),
            Value::Id(id) => query.bind(&id.as_bytes()[..]),
            // In their order, so that all lock rows in the same one.
            Value::Ids(ids) => {
                let ids: BTreeSet<TaskId> = ids.iter().copied().collect();
                query.bind(json(&ids.into_iter().map(Hex).collect::<Vec<_>>())?)
            }
            _ => query.bind(None::<i64>),
        };
    }
    Ok(query)
}

fn cells(row: &MySqlRow) -> Result<Cells, sqlx::Error> {
    let cell = |column| {
        let raw = row.try_get_raw(column)?;
        if raw.is_null() {
            return Ok(Value::Null);
        }
        Ok(match raw.type_info().name() {
            "BIGINT" | "INT" | "TINYINT" | "BOOLEAN" => Value::Int(row.try_get_unchecked(column)?),
            "BIGINT UNSIGNED" | "INT UNSIGNED" | "TINYINT UNSIGNED" => {
                let number: u64 = row.try_get_unchecked(column)?;
                i64::try_from(number).map_or(Value::Odd, Value::Int)
            }
            "BINARY" | "VARBINARY" | "BLOB" | "MEDIUMBLOB" | "LONGBLOB" | "CHAR" | "VARCHAR" | "TEXT"
            | "MEDIUMTEXT" | "LONGTEXT" => {
                let bytes: Vec<u8> = row.try_get_unchecked(column)?;
                match TEXTS.contains(&row.column(column).name()) {
                    false => Value::Bytes(bytes),
                    // What is no text was written by hand.
                    true => String::from_utf8(bytes)
                        .map_or_else(|other| Value::Bytes(other.into_bytes()), Value::Text),
                }
            }
            _ => Value::Odd,
        })
    };
    (0..row.len()).map(cell).collect()
}
