//! Reads rows and changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, Row};

use super::Server;
use super::codec::{self, HexText};
use super::sql::Sql;
use crate::store::rows::Rows;
use crate::store::{Noted, Page, Pending, Stamped, Target};
use crate::timestamp::millis;
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

pub(super) type Query = sqlx::query::Query<'static, MySql, MySqlArguments>;

/// A statement without its values.
pub(super) fn query(sql: &Arc<str>) -> Query {
    sqlx::query(AssertSqlSafe(sql.clone()))
}

/// Rows that were read, and the time when the last of them was.
#[derive(Debug, Default)]
pub(super) struct Read<T> {
    pub(super) rows: T,
    pub(super) now: Option<Timestamp>,
}

/// The state of rows, the wake-ups that hold for them, and how long their payloads are.
pub(super) type Looks = BTreeMap<TaskId, (State, Pending, usize)>;

/// The time by the server's clock.
pub(super) async fn now(connection: &mut MySqlConnection, sql: &Sql) -> Result<Timestamp, sqlx::Error> {
    let row = query(&sql.now).fetch_one(connection).await?;
    codec::time(&row, 0)
}

/// What tells of these ids whether a wake-up or a claim still holds, by one of the statements that look.
pub(super) async fn look(
    connection: &mut MySqlConnection,
    sql: &Arc<str>,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Read<Looks>, sqlx::Error> {
    let found = query(sql).bind(codec::ids(ids)?).fetch_all(connection).await?;
    let mut read: Read<Looks> = Read::default();
    for row in &found {
        read.now = read.now.max(Some(codec::time(row, codec::LOOK_NOW)?));
        if codec::some_id(row, 0)?.is_none() {
            continue;
        }
        match codec::look(row) {
            Ok((state, pending)) => {
                let size = codec::size(row)?;
                read.rows.insert(pending.wake.id, (state, pending, size));
            }
            Err(error) => left_alone(row, 0, &error),
        }
    }
    Ok(read)
}

/// The rows of these ids, by one of the statements that read whole rows; those that make no sense are left out: one that
/// was edited by hand must not keep all others from being claimed.
pub(super) async fn sound_by_ids(
    connection: &mut MySqlConnection,
    sql: &Arc<str>,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Read<Vec<Task>>, sqlx::Error> {
    sound(query(sql).bind(codec::ids(ids)?).fetch_all(connection).await?)
}

/// What was renewed of claims: the version of the claim, the end of its lease, and whether its handler has started.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lease {
    version: u64,
    until: Timestamp,
    started: bool,
}

/// Writes what was renewed of claims into their rows, which are locked: by a statement of its own, as the one that locked
/// them may have begun before the last renewal.
pub(super) async fn add_leases(
    connection: &mut MySqlConnection,
    sql: &Sql,
    rows: &mut [Task],
) -> Result<(), sqlx::Error> {
    let running = rows.iter().filter(|row| row.state == State::Running);
    let ids: Vec<_> = running.map(|row| row.id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    let found = query(&sql.leases)
        .bind(codec::ids(ids)?)
        .fetch_all(connection)
        .await?;
    let lease = |row: &MySqlRow| {
        let lease = Lease {
            version: row.try_get(1)?,
            until: codec::time(row, 2)?,
            started: row.try_get::<i64, _>(3)? != 0,
        };
        Ok((codec::id(row, 0)?, lease))
    };
    let leases: Result<BTreeMap<_, _>, sqlx::Error> = found.iter().map(lease).collect();
    let leases = leases?;
    for row in rows {
        if let Some(lease) = leases.get(&row.id).filter(|lease| lease.version == row.version) {
            row.wake_at = Some(lease.until);
            row.started = lease.started;
        }
    }
    Ok(())
}

/// What makes sense of these rows.
pub(super) fn sound(found: Vec<MySqlRow>) -> Result<Read<Vec<Task>>, sqlx::Error> {
    let task = |row: &MySqlRow| match codec::task(row) {
        Ok(task) => Some(task),
        Err(error) => {
            left_alone(row, 0, &error);
            None
        }
    };
    Ok(Read {
        now: last_now(&found)?,
        rows: found.iter().filter_map(task).collect(),
    })
}

/// Tells of a row that makes no sense.
pub(super) fn left_alone(row: &MySqlRow, id: usize, error: &sqlx::Error) {
    let id = codec::id(row, id).map(|id| id.to_string()).unwrap_or_default();
    tracing::error!(
        store = super::NAME, %id, %error,
        "the row of a task cannot be read, so it does not run, and holds up no other; repair or remove it"
    );
}

/// The ids of the live and the newest rows of these kinds and keys: for each kind and key, those that there are.
pub(super) async fn ids_of_keys(
    connection: &mut MySqlConnection,
    sql: &Sql,
    keys: impl IntoIterator<Item = &(Kind, Key)>,
) -> Result<Vec<[Option<TaskId>; 2]>, sqlx::Error> {
    let keys = keys.into_iter();
    let keys: Vec<_> = keys
        .map(|(kind, key)| [HexText(kind.as_str()), HexText(key.as_str())])
        .collect();
    let query = query(&sql.look_keys).bind(codec::json(&keys)?);
    let found = query.fetch_all(connection).await?;
    let ids = found
        .iter()
        .map(|row| Ok([codec::some_id(row, 0)?, codec::some_id(row, 1)?]));
    ids.collect()
}

/// The due rows of a kind, the longest due first, up to a limit: due time, id, and how long the payload is.
pub(super) async fn due(
    connection: &mut MySqlConnection,
    sql: &Sql,
    kind: &Kind,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(Timestamp, Vec<u8>, usize)>, sqlx::Error> {
    let query = query(&sql.due)
        .bind(kind.as_str().as_bytes().to_vec())
        .bind(now.as_millis())
        .bind(codec::limit(limit));
    let found = query.fetch_all(connection).await?;
    let due = found.iter().map(|row| {
        let size = usize::try_from(row.try_get::<u64, _>(2)?).unwrap_or(usize::MAX);
        Ok((codec::time(row, 0)?, row.try_get(1)?, size))
    });
    due.collect()
}

pub(super) async fn server_now(server: &Server) -> Result<Timestamp, sqlx::Error> {
    let mut lent = server.pools.workers.lend().await?;
    let now = now(&mut lent, &server.sql).await?;
    lent.give_back();
    Ok(now)
}

/// What is noted of a row.
pub(super) async fn noted(server: &Server, id: TaskId) -> Result<Noted, sqlx::Error> {
    let mut lent = server.pools.callers.lend().await?;
    let query = query(&server.sql.noted).bind(id.as_bytes().to_vec());
    let found = query.fetch_optional(&mut *lent).await?;
    lent.give_back();
    let Some(row) = found else {
        return Ok(Noted::default());
    };
    Ok(Noted {
        history: row.try_get(0)?,
        sent: row.try_get(1)?,
    })
}

pub(super) async fn find(server: &Server, target: &Target) -> Result<Option<Task>, sqlx::Error> {
    let mut lent = server.pools.callers.lend().await?;
    let found = of_target(&mut lent, &server.sql, target).await?;
    lent.give_back();
    Ok(found)
}

/// The row of a target; by key its live row, else the newest.
pub(super) async fn of_target(
    connection: &mut MySqlConnection,
    sql: &Sql,
    target: &Target,
) -> Result<Option<Task>, sqlx::Error> {
    let query = match target {
        Target::Id(id) => query(&sql.by_ids).bind(codec::ids([*id])?),
        Target::Key(kind, key) => {
            let (kind, key) = (kind.as_str().as_bytes(), key.as_str().as_bytes());
            let values = [kind, key, kind, key].into_iter();
            values.fold(query(&sql.by_key), |query, value| query.bind(value.to_vec()))
        }
    };
    let found = query.fetch_all(connection).await?;
    let found: Result<Vec<_>, _> = found.iter().map(codec::task).collect();
    let mut rows = Rows::default();
    rows.load(found?);
    Ok(rows.find(target).cloned())
}

pub(super) async fn list(server: &Server, page: &Page) -> Result<Vec<Task>, sqlx::Error> {
    let (mut time, mut id) = match &page.after {
        Some((time, id)) => (time.as_millis(), id.as_bytes().to_vec()),
        None => (i64::MIN, Vec::new()),
    };
    let mut lent = server.pools.callers.lend().await?;
    loop {
        let query = query(&server.sql.list)
            .bind(page.kind.as_str().as_bytes().to_vec())
            .bind(codec::number(page.state))
            .bind(time)
            .bind(time)
            .bind(id)
            .bind(codec::limit(page.limit));
        let found = query.fetch_all(&mut *lent).await?;
        let place = found
            .last()
            .map(|last| Ok::<_, sqlx::Error>((last.try_get(5)?, last.try_get(0)?)));
        let tasks = sound(found)?.rows;
        match place.transpose()? {
            // An empty page would be the last one.
            Some(place) if tasks.is_empty() => (time, id) = place,
            _ => {
                lent.give_back();
                return Ok(tasks);
            }
        }
    }
}

pub(super) async fn kinds(
    server: &Server,
    state: State,
    after: Option<&Kind>,
    limit: usize,
) -> Result<Vec<Kind>, sqlx::Error> {
    let mut lent = server.pools.callers.lend().await?;
    let mut kinds: Vec<Kind> = Vec::new();
    let mut last: Vec<u8> = after.map_or("", Kind::as_str).into();
    while kinds.len() < limit {
        let query = query(&server.sql.next_kind).bind(codec::number(state)).bind(last);
        let Some(next) = query.fetch_optional(&mut *lent).await? else {
            break;
        };
        match codec::kind(&next, 0) {
            Ok(kind) => kinds.push(kind),
            Err(error) => {
                tracing::error!(
                    store = super::NAME, %error,
                    "a kind cannot be read, so its tasks do not run; repair or remove them"
                )
            }
        }
        last = next.try_get(0)?;
    }
    lent.give_back();
    Ok(kinds)
}

/// How many rows of a kind and a state are due within each of these spans, up to `most`.
pub(super) async fn due_within(
    server: &Server,
    kind: &Kind,
    state: State,
    spans: &[Duration],
    most: usize,
) -> Result<Stamped<Vec<usize>>, sqlx::Error> {
    // No longer than all time, so that a time and a span can be added.
    let span = |span: &Duration| millis(*span).min(Timestamp::MAX.as_millis());
    let spans: Vec<_> = spans.iter().map(span).collect();
    let mut lent = server.pools.callers.lend().await?;
    let query = query(&server.sql.due_within)
        .bind(codec::json(&spans)?)
        .bind(kind.as_str().as_bytes().to_vec())
        .bind(codec::number(state))
        .bind(spans.iter().max().copied())
        .bind(codec::limit(most));
    let counts = query.fetch_all(&mut *lent).await?;
    let now = match counts.first() {
        Some(first) => codec::time(first, 0)?,
        None => now(&mut lent, &server.sql).await?,
    };
    lent.give_back();
    let count = |row: &MySqlRow| Ok(usize::try_from(row.try_get::<i64, _>(1)?).unwrap_or(0));
    let counts: Result<_, sqlx::Error> = counts.iter().map(count).collect();
    Ok(Stamped { now, found: counts? })
}

pub(super) fn last_now(rows: &[MySqlRow]) -> Result<Option<Timestamp>, sqlx::Error> {
    let mut now = None;
    for row in rows {
        now = now.max(Some(codec::time(row, codec::TASK_NOW)?));
    }
    Ok(now)
}
