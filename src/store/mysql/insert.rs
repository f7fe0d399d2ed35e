//! Writes new rows on one connection.

use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::cells::hex;
use super::errors::TooBig;
use super::sql::{AT_ONCE, Sql, WIDTHS, query};
use crate::Task;
use crate::Timestamp;
use crate::store::sql::{STATEMENT, codec};
use crate::store::{NewRow, Noted};

/// How many rows one statement writes at the most: a usual batch.
pub(super) const MOST: usize = WIDTHS[WIDTHS.len() - 1];

/// How many bytes of values any server takes. Those that allow less cannot be used for much.
const ALWAYS: usize = 512 << 10;
/// How many bytes a statement may take beside the values of a row that are long.
const REST_OF_ROW: usize = 512;

/// How many bytes of values a statement may carry of rows of these sizes, and which of these sizes is too long for any: a
/// server that gets it ends the connection without a word.
pub(super) async fn budget(
    connection: &mut MySqlConnection,
    sql: &Sql,
    sizes: impl Iterator<Item = usize> + Clone + Send,
) -> Result<(usize, Option<TooBig>), sqlx::Error> {
    if sizes.clone().fold(0, usize::saturating_add) <= ALWAYS {
        return Ok((ALWAYS, None));
    }
    let row = query(&sql.packet).fetch_one(connection).await?;
    let limit = usize::try_from(row.try_get::<u64, _>(0)?).unwrap_or(usize::MAX);
    let bytes = sizes.max().unwrap_or(0);
    let too_big = bytes.saturating_add(REST_OF_ROW) >= limit;
    // In a text, each byte takes two digits.
    Ok((
        STATEMENT.min(limit / 4),
        too_big.then_some(TooBig { bytes, limit }),
    ))
}

/// Writes new rows as they are at `now`, on a connection of the store's own: all, or none of them. It does not wait for locks.
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
    let values = vec!["(?,?,?,0,1,?,?,?,0,0,0,?,0,?,?,?,?,?,?)".to_owned(); rows.len()];
    let mut query = sqlx::query(AssertSqlSafe(text(before, &sql.table, &values)));
    for new in rows {
        let (row, noted) = row_of(new, now);
        query = query
            .bind(row.id.as_bytes().to_vec())
            .bind(new.kind.as_str().as_bytes())
            .bind(new.key.as_ref().map(|key| key.as_str().as_bytes()))
            .bind(row.due_at.as_millis())
            .bind(row.planned_at.as_millis())
            .bind(row.wake_at.map(Timestamp::as_millis))
            .bind(row.max_attempts)
            .bind(now.as_millis())
            .bind(now.as_millis())
            .bind(codec::headers(&new.headers)?)
            .bind(&*new.payload)
            .bind(noted.history)
            .bind(noted.sent);
    }
    query.execute(connection).await?;
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
    let mut values = Vec::with_capacity(rows.len());
    for new in rows {
        let (row, noted) = row_of(new, now);
        let bytes = |bytes: &[u8]| format!("x'{}'", hex(bytes));
        let or_null = |text: Option<String>| text.unwrap_or_else(|| "NULL".to_owned());
        values.push(format!(
            "({id},{kind},{key},0,1,{due_at},{planned_at},{wake_at},0,0,0,{limit},0,{now},{now},_utf8mb4 {headers},{payload},\
             _utf8mb4 {history},{sent})",
            id = bytes(row.id.as_bytes()),
            kind = bytes(new.kind.as_str().as_bytes()),
            key = or_null(new.key.as_ref().map(|key| bytes(key.as_str().as_bytes()))),
            due_at = row.due_at.as_millis(),
            planned_at = row.planned_at.as_millis(),
            wake_at = or_null(row.wake_at.map(|time| time.as_millis().to_string())),
            limit = or_null(row.max_attempts.map(|limit| limit.to_string())),
            now = now.as_millis(),
            headers = bytes(codec::headers(&new.headers)?.as_bytes()),
            payload = bytes(&new.payload),
            history = bytes(noted.history.as_bytes()),
            sent = or_null(noted.sent.map(|sent| format!("_utf8mb4 {}", bytes(sent.as_bytes())))),
        ));
    }
    let text = text(AT_ONCE, &sql.table, &values);
    sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await?;
    Ok(())
}

/// A new row without what is long, and what is noted of it.
fn row_of(new: &NewRow, now: Timestamp) -> (Task, Noted) {
    let lean = NewRow {
        id: new.id,
        kind: new.kind.clone(),
        key: None,
        payload: Vec::new(),
        headers: Default::default(),
        note: new.note.clone(),
        ..*new
    };
    lean.row(now)
}

/// Writes new rows, each given as its values.
fn text(before: &str, table: &str, values: &[String]) -> String {
    format!(
        "{before}INSERT INTO {table} (id, kind, `key`, state, version, due_at, planned_at, wake_at, attempt, started, stalls, \
         max_attempts, hop, created_at, updated_at, headers, payload, history, sent) VALUES {}",
        values.join(",")
    )
}
