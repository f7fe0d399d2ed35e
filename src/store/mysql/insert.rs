//! Writes new rows on one connection.

use sqlx::{AssertSqlSafe, MySqlConnection, SqlSafeStr};

use super::driver::execute;
use super::sql::{AT_ONCE, Sql, WIDTHS};
use crate::Timestamp;
use crate::store::NewRow;
use crate::store::sql::codec::hex;
use crate::store::sql::{NEW, Value, new_values};

/// How many rows one statement writes at the most: a usual batch.
pub(super) const MOST: usize = WIDTHS[WIDTHS.len() - 1];

/// Writes new rows as they are at `now`, on a connection of the store's own: all, or none of them. It waits for no lock on
/// MariaDB, and on MySQL for a second.
pub(super) async fn all(
    connection: &mut MySqlConnection,
    sql: &Sql,
    rows: &[&NewRow],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    match rows.len() {
        1 | MOST => prepared(connection, AT_ONCE, sql, rows, now).await,
        _ => literally(connection, sql, rows, now).await,
    }
}

/// The same by a statement that is kept prepared, if it is for as many as there is one for.
pub(super) async fn prepared(
    connection: &mut MySqlConnection,
    before: &str,
    sql: &Sql,
    rows: &[&NewRow],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let text = text(before, sql, rows.len(), std::iter::repeat("?".to_owned()));
    let text = AssertSqlSafe(text).into_sql_str();
    execute(connection, text, &values(rows, now)?).await?;
    Ok(())
}

/// Writes rows by a statement that has them in its text, every byte of theirs as hex digits: for numbers of rows for
/// which none is kept prepared. One that is prepared for a single use is closed afterwards by a message that the
/// server does not answer, and the next one then waits some 40 ms for the acknowledgement of that (TCP's delayed
/// acknowledgement, and the driver has no TCP_NODELAY).
async fn literally(
    connection: &mut MySqlConnection,
    sql: &Sql,
    rows: &[&NewRow],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let literals = values(rows, now)?.into_iter().map(|value| match value {
        Value::Int(int) => int.to_string(),
        Value::Bytes(bytes) => format!("x'{}'", hex(&bytes)),
        Value::Text(text) => format!("_utf8mb4 x'{}'", hex(text.as_bytes())),
        _ => "NULL".to_owned(),
    });
    let text = text(AT_ONCE, sql, rows.len(), literals);
    sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await?;
    Ok(())
}

/// The values of new rows; kinds and keys are bytes here.
fn values(rows: &[&NewRow], now: Timestamp) -> Result<Vec<Value>, sqlx::Error> {
    let mut values = new_values(rows, now)?;
    for value in values.chunks_mut(NEW).flat_map(|row| &mut row[1..3]) {
        if let Value::Text(text) = value {
            *value = Value::Bytes(std::mem::take(text).into_bytes());
        }
    }
    Ok(values)
}

/// The statement for so many rows, whose values are written so.
fn text(before: &str, sql: &Sql, rows: usize, mut values: impl Iterator<Item = String>) -> String {
    let mut row = || values.by_ref().take(NEW).collect::<Vec<_>>().join(",");
    let rows: Vec<_> = (0..rows).map(|_| format!("({},0,1,0,0,0,0)", row())).collect();
    format!(
        "{before}INSERT INTO {} (id, kind, `key`, due_at, planned_at, wake_at, max_attempts, created_at, updated_at, \
         headers, payload, history, state, version, attempt, started, stalls, hop) VALUES {}",
        sql.table,
        rows.join(",")
    )
}
