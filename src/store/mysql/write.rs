//! Writes what has been decided.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sqlx::{AssertSqlSafe, MySqlConnection, Row};

use super::Server;
use super::codec::{self, Hex};
use super::errors::TooBig;
use super::read::{Query, query};
use super::sql::{self, INSERT_WIDTH, Sql};
use crate::store::sql::{Changed, STATEMENT, batches, clip, ensure, size};
use crate::store::{Claim, NewRow, Noted, row};
use crate::{Task, TaskId, Timestamp};

/// How many bytes of values any server takes. Those that allow less cannot be used for much.
const ALWAYS: usize = 512 << 10;
/// How many bytes a statement may take beside the values of a row that are long.
const REST_OF_ROW: usize = 512;

/// How many bytes of values a statement may carry of rows of these sizes. Fails if one of them is too long for any:
/// a server that gets it ends the connection without a word.
async fn budget(
    connection: &mut MySqlConnection,
    sql: &Sql,
    sizes: impl Iterator<Item = usize> + Clone,
) -> Result<usize, sqlx::Error> {
    if sizes.clone().sum::<usize>() <= ALWAYS {
        return Ok(ALWAYS);
    }
    let row = query(&sql.packet).fetch_one(connection).await?;
    let limit = usize::try_from(row.try_get::<u64, _>(0)?).unwrap_or(usize::MAX);
    match sizes.max() {
        Some(bytes) if bytes.saturating_add(REST_OF_ROW) >= limit => Err(TooBig { bytes, limit }.into()),
        // In a text, each byte takes two digits.
        _ => Ok(STATEMENT.min(limit / 4)),
    }
}

/// Writes new rows as they are at `now`. Says which: an error is not one if `is_pardoned` says so, for then the
/// statement has written none of its rows.
pub(super) async fn add(
    connection: &mut MySqlConnection,
    server: &Server,
    rows: &[NewRow],
    now: Timestamp,
    whose: Whose,
    is_pardoned: impl Fn(&sqlx::Error) -> bool,
) -> Result<BTreeSet<TaskId>, sqlx::Error> {
    let budget = budget(connection, &server.sql, rows.iter().map(size)).await?;
    let mut added = BTreeSet::new();
    for rows in batches(rows, INSERT_WIDTH, budget, size) {
        let at_once = match whose {
            Whose::Services if server.sql.insert(rows.len(), false).is_none() => 1,
            Whose::Services | Whose::Own | Whose::Nobodys => rows.len(),
        };
        for rows in rows.chunks(at_once) {
            let written = match server.sql.insert(rows.len(), matches!(whose, Whose::Nobodys)) {
                Some(sql) => add_prepared(connection, sql, rows, now).await,
                None => add_literally(connection, &server.table, rows, now, whose).await,
            };
            match written {
                Ok(()) => added.extend(rows.iter().map(|row| row.id)),
                Err(error) if is_pardoned(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(added)
}

/// Whose connection a statement is sent on.
#[derive(Clone, Copy)]
pub(super) enum Whose {
    /// The store's own, whose statements nobody logs.
    Own,
    /// The same, and outside of a transaction: who would have to wait for a lock is told so at once.
    Nobodys,
    /// The service's, which may log the texts of statements: so values are no part of them.
    Services,
}

async fn add_prepared(
    connection: &mut MySqlConnection,
    sql: Arc<str>,
    rows: &[NewRow],
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let mut query = query(&sql);
    for new in rows {
        let due_at = row::due_at(new.due, now).as_millis();
        let noted = Noted::of_new(new, now);
        query = query
            .bind(new.id.as_bytes().to_vec())
            .bind(new.kind.as_str().as_bytes().to_vec())
            .bind(new.key.as_ref().map(|key| key.as_str().as_bytes().to_vec()))
            .bind(due_at)
            .bind(due_at.max(now.as_millis()))
            .bind(now.after(new.look_in).as_millis())
            .bind(new.max_attempts)
            .bind(now.as_millis())
            .bind(now.as_millis())
            .bind(codec::headers(&new.headers)?)
            .bind(new.payload.clone())
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
async fn add_literally(
    connection: &mut MySqlConnection,
    table: &str,
    rows: &[NewRow],
    now: Timestamp,
    whose: Whose,
) -> Result<(), sqlx::Error> {
    let mut values = Vec::with_capacity(rows.len());
    for new in rows {
        let due_at = row::due_at(new.due, now).as_millis();
        let key = new.key.as_ref().map(|key| hex(key.as_str().as_bytes()));
        let limit = new.max_attempts.map(|limit| limit.to_string());
        let noted = Noted::of_new(new, now);
        let sent = noted
            .sent
            .map(|sent| format!("_utf8mb4 {}", hex(sent.as_bytes())));
        values.push(format!(
            "({id},{kind},{key},0,1,{due_at},{planned_at},{wake_at},0,0,{limit},0,{now},{now},_utf8mb4 {headers},{payload},\
             _utf8mb4 {history},{sent})",
            id = hex(new.id.as_bytes()),
            kind = hex(new.kind.as_str().as_bytes()),
            key = key.as_deref().unwrap_or("NULL"),
            planned_at = due_at.max(now.as_millis()),
            wake_at = now.after(new.look_in).as_millis(),
            limit = limit.as_deref().unwrap_or("NULL"),
            now = now.as_millis(),
            headers = hex(codec::headers(&new.headers)?.as_bytes()),
            payload = hex(&new.payload),
            history = hex(noted.history.as_bytes()),
            sent = sent.as_deref().unwrap_or("NULL"),
        ));
    }
    let before = match whose {
        Whose::Nobodys => sql::AT_ONCE,
        Whose::Own | Whose::Services => "",
    };
    let text = sql::insert_of(before, table, &values);
    sqlx::raw_sql(AssertSqlSafe(text)).execute(connection).await?;
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
    let digits = bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)]);
    ["x'", &digits.collect::<String>(), "'"].concat()
}

/// Claims rows. Says how many.
pub(super) async fn claim(
    connection: &mut MySqlConnection,
    sql: &Sql,
    ids: &[TaskId],
    claim: &Claim,
    now: Timestamp,
) -> Result<u64, sqlx::Error> {
    let mut written = 0;
    for ids in ids.chunks(INSERT_WIDTH) {
        let (statement, width) = sql.claim(ids.len());
        let query = query(&statement)
            .bind(claim.owner.to_string())
            .bind(now.after(claim.lease).as_millis())
            .bind(now.as_millis());
        let query = with_ids(query, ids, width);
        written += query.execute(&mut *connection).await?.rows_affected();
    }
    Ok(written)
}

/// A statement with the ids that are its last values: the last of them again where there are more places.
fn with_ids(query: Query, ids: &[TaskId], places: usize) -> Query {
    let last = ids.last().into_iter().cycle();
    let ids = ids.iter().chain(last).take(places);
    ids.fold(query, |query, id| query.bind(id.as_bytes().to_vec()))
}

/// Writes what hops have made of rows. Says how many.
pub(super) async fn hopped(
    connection: &mut MySqlConnection,
    sql: &Sql,
    rows: &[Changed],
) -> Result<u64, sqlx::Error> {
    if rows.is_empty() {
        return Ok(0);
    }
    let value = |(_, row): &Changed| (Hex(row.id), row.version, row.hop, row.wake_at);
    let values: Vec<_> = rows.iter().map(value).collect();
    let query = query(&sql.hop).bind(codec::json(&values)?);
    Ok(query.execute(connection).await?.rows_affected())
}

/// Writes what transitions have made of rows; not their payload, headers and limit, which [`refill`] does. Says how
/// many.
pub(super) async fn write(
    connection: &mut MySqlConnection,
    sql: &Sql,
    rows: &[Changed],
) -> Result<u64, sqlx::Error> {
    let (ended, others): (Vec<_>, Vec<_>) = rows.iter().partition(|(before, row)| before.has_only_ended(row));
    let (with_error, without): (Vec<_>, Vec<_>) =
        others.into_iter().partition(|(_, row)| row.last_error.is_some());
    let written = write_ended(connection, sql, ended).await?
        + write_by(connection, sql, &sql.write, without).await?
        + write_by(connection, sql, &sql.write_error, with_error).await?;
    Ok(written)
}

/// Writes rows that have only ended: nearly always all of a call become the same.
async fn write_ended(
    connection: &mut MySqlConnection,
    sql: &Sql,
    rows: Vec<&Changed>,
) -> Result<u64, sqlx::Error> {
    let mut alike = BTreeMap::<_, Vec<TaskId>>::new();
    for (_, row) in rows {
        let state = codec::number(row.state);
        let made = (state, row.wake_at, row.updated_at, row.finished_at);
        alike.entry(made).or_default().push(row.id);
    }
    let mut written = 0;
    for ((state, wake_at, updated_at, finished_at), ids) in alike {
        for ids in ids.chunks(INSERT_WIDTH) {
            let (statement, width) = sql.ended(ids.len());
            let query = query(&statement)
                .bind(state)
                .bind(wake_at.map(Timestamp::as_millis))
                .bind(updated_at.as_millis())
                .bind(finished_at.map(Timestamp::as_millis));
            let query = with_ids(query, ids, width);
            written += query.execute(&mut *connection).await?.rows_affected();
        }
    }
    Ok(written)
}

async fn write_by(
    connection: &mut MySqlConnection,
    sql: &Sql,
    statement: &Arc<str>,
    mut rows: Vec<&Changed>,
) -> Result<u64, sqlx::Error> {
    rows.sort_unstable_by_key(|(_, row)| row.id);
    let values = rows.into_iter().map(|(before, row)| {
        codec::json(&(
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
            row.stalls,
            row.last_error.as_deref().map(clip),
        ))
    });
    let values: Vec<String> = values.collect::<Result<_, _>>()?;
    let budget = budget(connection, sql, values.iter().map(String::len)).await?;
    let mut written = 0;
    for values in batches(&values, INSERT_WIDTH, budget, String::len) {
        let query = query(statement).bind(format!("[{}]", values.join(",")));
        written += query.execute(&mut *connection).await?.rows_affected();
    }
    Ok(written)
}

/// Adds to what is noted of rows, if there is anything.
pub(super) async fn note(
    connection: &mut MySqlConnection,
    sql: &Sql,
    rows: &[(TaskId, Noted)],
) -> Result<(), sqlx::Error> {
    for rows in batches(rows, INSERT_WIDTH, ALWAYS, |(_, noted)| noted.history.len()) {
        let value = |(id, noted): &(TaskId, Noted)| {
            let sent = noted.sent.clone().unwrap_or_default();
            (Hex(*id), noted.history.clone(), sent)
        };
        let values: Vec<_> = rows.iter().map(value).collect();
        let query = query(&sql.note).bind(codec::json(&values)?);
        let touched = query.execute(&mut *connection).await?.rows_affected();
        ensure("a note", touched, rows.len())?;
    }
    Ok(())
}

/// Gives a row its new payload, headers and limit.
pub(super) async fn refill(
    connection: &mut MySqlConnection,
    sql: &Sql,
    row: &Task,
) -> Result<(), sqlx::Error> {
    let headers = codec::headers(&row.headers)?;
    let bytes = headers.len() + row.payload.len();
    budget(connection, sql, std::iter::once(bytes)).await?;
    let query = query(&sql.refill)
        .bind(row.payload.clone())
        .bind(headers)
        .bind(row.max_attempts)
        .bind(row.id.as_bytes().to_vec());
    let touched = query.execute(connection).await?.rows_affected();
    ensure("a refill", touched, 1)
}

/// Moves `wake_at` of rows, and nothing else.
pub(super) async fn wake_at(
    connection: &mut MySqlConnection,
    sql: &Sql,
    ids: &BTreeSet<TaskId>,
    time: Timestamp,
) -> Result<(), sqlx::Error> {
    if ids.is_empty() {
        return Ok(());
    }
    let query = query(&sql.wake_at)
        .bind(codec::ids(ids.iter().copied())?)
        .bind(time.as_millis());
    let touched = query.execute(connection).await?.rows_affected();
    ensure("a move", touched, ids.len())
}

/// Forgets what was renewed of claims.
pub(super) async fn forget(
    connection: &mut MySqlConnection,
    sql: &Sql,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<(), sqlx::Error> {
    let ids: Vec<_> = ids.into_iter().collect();
    if !ids.is_empty() {
        let query = query(&sql.forget).bind(codec::ids(ids)?);
        query.execute(connection).await?;
    }
    Ok(())
}

/// The same, unless it was renewed beyond a time since.
pub(super) async fn forget_until(
    connection: &mut MySqlConnection,
    sql: &Sql,
    ids: Vec<TaskId>,
    time: Timestamp,
) -> Result<(), sqlx::Error> {
    if !ids.is_empty() {
        let query = query(&sql.forget_until).bind(codec::ids(ids)?);
        query.bind(time.as_millis()).execute(connection).await?;
    }
    Ok(())
}
