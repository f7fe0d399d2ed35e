//! Writes what has been decided under the lock for writing.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::sqlite::SqliteQueryResult;
use sqlx::{AssertSqlSafe, SqliteConnection};

use super::codec::{self, Hex};
use super::sql;
use crate::store::sql::{Changed, ensure};
use crate::store::{NewRow, Noted, row};
use crate::{Task, TaskId, Timestamp};

/// Adds new rows, but leaves those of an id or a live key that is there; gives the ids of those that it added.
pub(super) async fn add(
    connection: &mut SqliteConnection,
    rows: &[NewRow],
    now: Timestamp,
) -> Result<BTreeSet<TaskId>, sqlx::Error> {
    let (mut added, mut last) = (0, 0);
    for part in rows.chunks(sql::MOST) {
        let done = inserted(connection, sql::insert(part.len()), part, now).await?;
        added += done.rows_affected();
        last = done.last_insert_rowid();
    }
    if added == rows.len() as u64 {
        return Ok(rows.iter().map(|new| new.id).collect());
    }
    if added == 0 {
        return Ok(BTreeSet::new());
    }
    // Which they are the statement would tell only at a cost for every row. But nobody else writes meanwhile, so they are
    // the last rows of the table.
    let before = last.saturating_sub_unsigned(added);
    let ids = sqlx::query(sql::ADDED).bind(before).fetch_all(connection).await?;
    ids.iter().map(|row| codec::id(row, 0)).collect()
}

/// Adds new rows, up to [`sql::MOST`], and commits, if none of them is there; else does nothing, and says so.
pub(super) async fn add_and_commit(
    connection: &mut SqliteConnection,
    rows: &[NewRow],
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    match inserted(connection, sql::insert_and_commit(rows.len()), rows, now).await {
        Ok(_) => Ok(true),
        Err(sqlx::Error::Database(error)) if error.is_unique_violation() => Ok(false),
        Err(error) => Err(error),
    }
}

async fn inserted(
    connection: &mut SqliteConnection,
    statement: String,
    rows: &[NewRow],
    now: Timestamp,
) -> Result<SqliteQueryResult, sqlx::Error> {
    let mut query = sqlx::query(AssertSqlSafe(statement));
    for new in rows {
        let due_at = row::due_at(new.due, now);
        let noted = Noted::of_new(new, now);
        query = query
            .bind(new.id.as_bytes().to_vec())
            .bind(new.kind.to_string())
            .bind(new.key.as_ref().map(ToString::to_string))
            .bind(due_at.as_millis())
            .bind(due_at.max(now).as_millis())
            .bind(now.after(new.look_in).as_millis())
            .bind(new.max_attempts.map(i64::from))
            .bind(now.as_millis())
            .bind(now.as_millis())
            .bind(codec::headers(&new.headers)?)
            .bind(new.payload.clone())
            .bind(noted.history)
            .bind(noted.sent);
    }
    query.execute(connection).await
}

/// Writes what transitions have made of rows; not their payload, headers and limit, which [`refill`] does. Says how
/// many.
pub(super) async fn write(connection: &mut SqliteConnection, rows: &[Changed]) -> Result<u64, sqlx::Error> {
    if rows.is_empty() {
        return Ok(0);
    }
    let values: Vec<_> = rows
        .iter()
        .map(|(before, row)| {
            (
                Hex(row.id),
                before.version,
                codec::number(row.state),
                row.version,
                row.due_at,
                row.planned_at,
                row.attempt,
                row.hop,
                row.updated_at,
                row.wake_at,
                row.finished_at,
                &row.last_error,
                row.started,
                row.stalls,
            )
        })
        .collect();
    let query = sqlx::query(sql::WRITE).bind(codec::json(&values)?);
    Ok(query.execute(connection).await?.rows_affected())
}

/// Adds to what is noted of rows, if there is anything.
pub(super) async fn note(
    connection: &mut SqliteConnection,
    rows: &[(TaskId, Noted)],
) -> Result<(), sqlx::Error> {
    if rows.is_empty() {
        return Ok(());
    }
    let value = |(id, noted): &(TaskId, Noted)| (Hex(*id), noted.history.clone(), noted.sent.clone());
    let values: Vec<_> = rows.iter().map(value).collect();
    let query = sqlx::query(sql::NOTE).bind(codec::json(&values)?);
    let touched = query.execute(connection).await?.rows_affected();
    ensure("a note", touched, rows.len())
}

/// Gives a row its new payload, headers and limit.
pub(super) async fn refill(connection: &mut SqliteConnection, row: &Task) -> Result<(), sqlx::Error> {
    let query = sqlx::query(sql::REFILL)
        .bind(row.id.as_bytes().to_vec())
        .bind(row.payload.clone())
        .bind(codec::headers(&row.headers)?)
        .bind(row.max_attempts.map(i64::from));
    let touched = query.execute(connection).await?.rows_affected();
    ensure("a refill", touched, 1)
}

/// Renews claims of rows, each with whether its handler has started.
pub(super) async fn renew(
    connection: &mut SqliteConnection,
    held: &BTreeMap<TaskId, bool>,
    until: Timestamp,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    if held.is_empty() {
        return Ok(());
    }
    let values: Vec<_> = held.iter().map(|(&id, started)| (Hex(id), started)).collect();
    let query = sqlx::query(sql::RENEW)
        .bind(codec::json(&values)?)
        .bind(until.as_millis())
        .bind(now.as_millis());
    let touched = query.execute(connection).await?.rows_affected();
    ensure("a renewal", touched, held.len())
}

/// Moves `wake_at` of rows, and nothing else.
pub(super) async fn wake_at(
    connection: &mut SqliteConnection,
    ids: &BTreeSet<TaskId>,
    time: Timestamp,
) -> Result<(), sqlx::Error> {
    if ids.is_empty() {
        return Ok(());
    }
    let query = sqlx::query(sql::WAKE_AT)
        .bind(codec::ids(ids.iter().copied())?)
        .bind(time.as_millis());
    let touched = query.execute(connection).await?.rows_affected();
    ensure("a move", touched, ids.len())
}
