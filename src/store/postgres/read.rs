//! Reads rows and changes nothing.

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{PgConnection, Postgres, Row};
use uuid::Uuid;

use super::codec;
use super::connections::Database;
use super::sql::Statements;
use crate::store::rows::Rows;
use crate::store::{Ahead, Page, Pending, Stamped};
use crate::{Key, Kind, State, Target, Task, TaskId, Timestamp};

pub(super) async fn now(database: &Database) -> Result<Timestamp, sqlx::Error> {
    let mut connection = database.pool.acquire().await?;
    time(&mut connection, &database.statements).await
}

/// The time by the database's clock.
pub(super) async fn time(
    connection: &mut PgConnection,
    statements: &Statements,
) -> Result<Timestamp, sqlx::Error> {
    let now = sqlx::query_scalar(statements.now.clone());
    Ok(Timestamp::from_millis(now.fetch_one(connection).await?))
}

pub(super) async fn upcoming(
    database: &Database,
    ahead: Ahead,
) -> Result<Stamped<Vec<Pending>>, sqlx::Error> {
    let query = sqlx::query(database.statements.upcoming.clone())
        .bind(codec::span(ahead.within))
        .bind(codec::limit(ahead.limit));
    let rows = query.fetch_all(&database.pool).await?;
    let (now, rows) = stamped(&rows)?;
    let mut found: Vec<_> = rows
        .map(|row| codec::pending(row, [1, 2, 3, 4, 5, 6]))
        .collect::<Result<_, _>>()?;
    found.sort_by_key(|row| (row.due_at, row.wake.id));
    Ok(Stamped { now, found })
}

/// The time in the first column, and the rows whose second one is not empty.
pub(super) fn stamped(rows: &[PgRow]) -> Result<(Timestamp, impl Iterator<Item = &PgRow>), sqlx::Error> {
    let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let now = Timestamp::from_millis(first.try_get(0)?);
    let filled = |row: &&PgRow| !matches!(row.try_get::<Option<Uuid>, _>(1), Ok(None));
    Ok((now, rows.iter().filter(filled)))
}

pub(super) async fn find(database: &Database, target: &Target) -> Result<Option<Task>, sqlx::Error> {
    let mut connection = database.pool.acquire().await?;
    of_target(&mut connection, &database.statements, target).await
}

/// The row that a target means.
pub(super) async fn of_target(
    connection: &mut PgConnection,
    statements: &Statements,
    target: &Target,
) -> Result<Option<Task>, sqlx::Error> {
    let query = match target {
        Target::Id(id) => by_ids(statements.by_ids.clone(), [*id]),
        Target::Key(kind, key) => by_keys(statements.by_keys.clone(), [(kind, key)]),
    };
    let found = query.fetch_all(connection).await?;
    let mut rows = Rows::default();
    rows.load(tasks(&found)?);
    Ok(rows.find(target).cloned())
}

pub(super) async fn list(database: &Database, page: &Page) -> Result<Vec<Task>, sqlx::Error> {
    let (time, id) = page
        .after
        .unwrap_or((Timestamp::MIN, TaskId::from_bytes([0; 16])));
    let query = sqlx::query(database.statements.list.clone())
        .bind(page.kind.as_str())
        .bind(codec::number(page.state))
        .bind(time.as_millis())
        .bind(codec::uuid(id))
        .bind(codec::limit(page.limit));
    tasks(&query.fetch_all(&database.pool).await?)
}

pub(super) async fn kinds(database: &Database, state: State) -> Result<Vec<Kind>, sqlx::Error> {
    let mut kinds: Vec<Kind> = Vec::new();
    loop {
        let last = kinds.last().map_or("", Kind::as_str);
        let query = sqlx::query(database.statements.next_kind.clone())
            .bind(codec::number(state))
            .bind(last.to_owned());
        match query.fetch_optional(&database.pool).await? {
            Some(next) => kinds.push(codec::kind(&next, 0)?),
            None => return Ok(kinds),
        }
    }
}

type Statement = Query<'static, Postgres, PgArguments>;

/// A statement that asks for ids.
pub(super) fn by_ids(statement: sqlx::SqlStr, ids: impl IntoIterator<Item = TaskId>) -> Statement {
    sqlx::query(statement).bind(codec::uuids(ids))
}

/// A statement that asks for kinds and keys.
pub(super) fn by_keys<'k>(
    statement: sqlx::SqlStr,
    keys: impl IntoIterator<Item = (&'k Kind, &'k Key)>,
) -> Statement {
    let names = keys
        .into_iter()
        .map(|(kind, key)| (kind.to_string(), key.to_string()));
    let (kinds, keys): (Vec<_>, Vec<_>) = names.unzip();
    sqlx::query(statement).bind(kinds).bind(keys)
}

fn tasks(rows: &[PgRow]) -> Result<Vec<Task>, sqlx::Error> {
    rows.iter().map(|row| codec::task(row, 0)).collect()
}
