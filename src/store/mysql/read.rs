//! Reads rows and changes nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};

use super::Server;
use super::codec::{self, Hex};
use super::sql::Sql;
use crate::store::rows::Rows;
use crate::store::{Page, Pending};
use crate::{Key, Kind, State, Target, Task, TaskId, Timestamp};

type Query = sqlx::query::Query<'static, MySql, MySqlArguments>;

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

/// The state of rows, and the wake-ups that hold for them.
pub(super) type Looks = BTreeMap<TaskId, (State, Pending)>;

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
        if let Some((state, pending)) = codec::look(row)? {
            read.rows.insert(pending.wake.id, (state, pending));
        }
    }
    Ok(read)
}

/// The rows of these ids, by one of the statements that read whole rows.
pub(super) async fn by_ids(
    connection: &mut MySqlConnection,
    sql: &Arc<str>,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Read<Vec<Task>>, sqlx::Error> {
    let found = query(sql).bind(codec::ids(ids)?).fetch_all(connection).await?;
    Ok(Read {
        now: last_now(&found)?,
        rows: tasks(&found)?,
    })
}

/// As [`by_ids`], but leaves out rows that make no sense: one that was edited by hand must not keep all others from
/// being claimed.
pub(super) async fn sound_by_ids(
    connection: &mut MySqlConnection,
    sql: &Arc<str>,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Read<Vec<Task>>, sqlx::Error> {
    sound(query(sql).bind(codec::ids(ids)?).fetch_all(connection).await?)
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
    tracing::error!(store = super::NAME, %id, %error, "a row makes no sense and is left alone");
}

/// The ids of the live and the newest rows of these kinds and keys: for each kind and key, those that there are.
pub(super) async fn ids_of_keys(
    connection: &mut MySqlConnection,
    sql: &Sql,
    keys: impl IntoIterator<Item = &(Kind, Key)>,
) -> Result<Vec<[Option<TaskId>; 2]>, sqlx::Error> {
    let keys = keys.into_iter();
    let keys: Vec<_> = keys
        .map(|(kind, key)| [Hex::Text(kind.as_str()), Hex::Text(key.as_str())])
        .collect();
    let query = query(&sql.look_keys).bind(codec::json(&keys)?);
    let found = query.fetch_all(connection).await?;
    let ids = found
        .iter()
        .map(|row| Ok([codec::some_id(row, 0)?, codec::some_id(row, 1)?]));
    ids.collect()
}

/// Whether there is a due row of a kind.
pub(super) async fn any_due(
    connection: &mut MySqlConnection,
    sql: &Sql,
    kind: &Kind,
    now: Timestamp,
) -> Result<bool, sqlx::Error> {
    let query = query(&sql.any_due)
        .bind(kind.as_str().as_bytes().to_vec())
        .bind(now.as_millis());
    Ok(query.fetch_optional(connection).await?.is_some())
}

pub(super) async fn server_now(server: &Server) -> Result<Timestamp, sqlx::Error> {
    let mut lent = server.connections.lend().await?;
    let now = now(&mut lent, &server.sql).await?;
    lent.give_back();
    Ok(now)
}

pub(super) async fn find(server: &Server, target: &Target) -> Result<Option<Task>, sqlx::Error> {
    let mut lent = server.connections.lend().await?;
    let found = of_target(&mut lent, &server.sql, target).await?;
    lent.give_back();
    Ok(found)
}

/// The row of a target; by key its live row, else the newest by id.
pub(super) async fn of_target(
    connection: &mut MySqlConnection,
    sql: &Sql,
    target: &Target,
) -> Result<Option<Task>, sqlx::Error> {
    let found = match target {
        Target::Id(id) => by_ids(connection, &sql.by_ids, [*id]).await?.rows,
        Target::Key(kind, key) => {
            let (kind, key) = (kind.as_str().as_bytes(), key.as_str().as_bytes());
            let mut query = query(&sql.by_key);
            for value in [kind, key, kind, key] {
                query = query.bind(value.to_vec());
            }
            tasks(&query.fetch_all(connection).await?)?
        }
    };
    let mut rows = Rows::default();
    rows.load(found);
    Ok(rows.find(target).cloned())
}

pub(super) async fn list(server: &Server, page: &Page) -> Result<Vec<Task>, sqlx::Error> {
    let (time, id) = match &page.after {
        Some((time, id)) => (time.as_millis(), id.as_bytes().to_vec()),
        None => (i64::MIN, Vec::new()),
    };
    let mut lent = server.connections.lend().await?;
    let query = query(&server.sql.list)
        .bind(page.kind.as_str().as_bytes().to_vec())
        .bind(codec::number(page.state))
        .bind(time)
        .bind(time)
        .bind(id)
        .bind(codec::limit(page.limit));
    let found = query.fetch_all(&mut *lent).await?;
    lent.give_back();
    tasks(&found)
}

pub(super) async fn kinds(server: &Server, state: State) -> Result<Vec<Kind>, sqlx::Error> {
    let mut lent = server.connections.lend().await?;
    let mut kinds: Vec<Kind> = Vec::new();
    loop {
        let last = kinds.last().map_or("", Kind::as_str);
        let query = query(&server.sql.next_kind)
            .bind(codec::number(state))
            .bind(last.as_bytes().to_vec());
        let Some(next) = query.fetch_optional(&mut *lent).await? else {
            break;
        };
        kinds.push(codec::kind(&next, 0)?);
    }
    lent.give_back();
    Ok(kinds)
}

fn tasks(rows: &[MySqlRow]) -> Result<Vec<Task>, sqlx::Error> {
    rows.iter().map(codec::task).collect()
}

fn last_now(rows: &[MySqlRow]) -> Result<Option<Timestamp>, sqlx::Error> {
    let mut now = None;
    for row in rows {
        now = now.max(Some(codec::time(row, codec::TASK_NOW)?));
    }
    Ok(now)
}
