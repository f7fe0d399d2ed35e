//! Reads rows and changes nothing.

use std::time::Duration;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::{PgConnection, Postgres, Row};
use uuid::Uuid;

use super::codec;
use super::connections::{Database, Using, fetch};
use super::sql::Statements;
use crate::store::rows::Rows;
use crate::store::{Noted, Page, Stamped, Target};
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

pub(super) async fn now(database: &Database) -> Result<Timestamp, sqlx::Error> {
    let mut using = Using::lend(&database.workers).await?;
    let now = time(&mut using, &database.statements).await?;
    using.give_back().await?;
    Ok(now)
}

/// The time by the database's clock.
pub(super) async fn time(
    connection: &mut PgConnection,
    statements: &Statements,
) -> Result<Timestamp, sqlx::Error> {
    let now = sqlx::query_scalar(statements.now.clone()).persistent(statements.prepared);
    Ok(Timestamp::from_millis(now.fetch_one(connection).await?))
}

/// The time in the first column, and the rows whose second one is not empty.
pub(super) fn stamped(rows: &[PgRow]) -> Result<(Timestamp, impl Iterator<Item = &PgRow>), sqlx::Error> {
    let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let now = Timestamp::from_millis(first.try_get(0)?);
    let filled = |row: &&PgRow| !matches!(row.try_get::<Option<Uuid>, _>(1), Ok(None));
    Ok((now, rows.iter().filter(filled)))
}

pub(super) async fn find(database: &Database, target: &Target) -> Result<Option<Task>, sqlx::Error> {
    let mut using = Using::lend(&database.callers).await?;
    let found = of_target(&mut using, &database.statements, target).await?;
    using.give_back().await?;
    Ok(found)
}

/// The row that a target means.
pub(super) async fn of_target(
    connection: &mut PgConnection,
    statements: &Statements,
    target: &Target,
) -> Result<Option<Task>, sqlx::Error> {
    let query = match target {
        Target::Id(id) => by_ids(statements.query(&statements.by_ids), [*id]),
        Target::Key(kind, key) => by_keys(statements.query(&statements.by_keys), [(kind, key)]),
    };
    let found = query.fetch_all(connection).await?;
    let found: Result<Vec<_>, _> = found.iter().map(|row| codec::task(row, 0)).collect();
    let mut rows = Rows::default();
    rows.load(found?);
    Ok(rows.find(target).cloned())
}

pub(super) async fn list(database: &Database, page: &Page) -> Result<Vec<Task>, sqlx::Error> {
    let (mut time, mut id) = page
        .after
        .unwrap_or((Timestamp::MIN, TaskId::from_bytes([0; 16])));
    loop {
        let query = sqlx::query(database.statements.list.clone())
            .bind(codec::name(page.kind.as_str()))
            .bind(codec::number(page.state))
            .bind(time.as_millis())
            .bind(codec::uuid(id))
            .bind(codec::limit(page.limit));
        let found = fetch(&database.callers, query).await?;
        let task = |row| codec::sound(row, 0, codec::task(row, 0));
        let tasks: Vec<_> = found.iter().filter_map(task).collect();
        match found.last() {
            // An empty page would be the last one.
            Some(last) if tasks.is_empty() => {
                time = Timestamp::from_millis(last.try_get(5)?);
                id = codec::id(last, 0)?;
            }
            _ => return Ok(tasks),
        }
    }
}

/// What is noted of a row.
pub(super) async fn noted(database: &Database, id: TaskId) -> Result<Noted, sqlx::Error> {
    let query = sqlx::query(database.statements.noted.clone()).bind(codec::uuid(id));
    let found = fetch(&database.callers, query).await?;
    let Some(row) = found.first() else {
        return Ok(Noted::default());
    };
    Ok(Noted {
        history: row.try_get(0)?,
        sent: row.try_get(1)?,
    })
}

pub(super) async fn kinds(
    database: &Database,
    state: State,
    after: Option<&Kind>,
    limit: usize,
) -> Result<Vec<Kind>, sqlx::Error> {
    let query = sqlx::query(database.statements.kinds.clone())
        .bind(codec::number(state))
        .bind(codec::text(after.map_or("", Kind::as_str)))
        .bind(codec::limit(limit));
    let found = fetch(&database.callers, query).await?;
    found.iter().map(|row| codec::kind(row, 0)).collect()
}

/// How many rows of a kind and a state are due within each of these spans, up to `most`.
pub(super) async fn due_within(
    database: &Database,
    kind: &Kind,
    state: State,
    spans: &[Duration],
    most: usize,
) -> Result<Stamped<Vec<usize>>, sqlx::Error> {
    let spans: Vec<_> = spans.iter().map(|span| codec::span(*span)).collect();
    let query = sqlx::query(database.statements.due_within.clone())
        .bind(codec::name(kind.as_str()))
        .bind(codec::number(state))
        .bind(spans)
        .bind(codec::limit(most));
    let told = fetch(&database.callers, query).await?;
    let told = told.first().ok_or(sqlx::Error::RowNotFound)?;
    let counts: Vec<i64> = told.try_get(1)?;
    let count = |count| usize::try_from(count).unwrap_or(0);
    Ok(Stamped {
        now: Timestamp::from_millis(told.try_get(0)?),
        found: counts.into_iter().map(count).collect(),
    })
}

pub(super) type Query<'q> = sqlx::query::Query<'q, Postgres, PgArguments>;

/// A statement that asks for ids.
pub(super) fn by_ids(query: Query<'static>, ids: impl IntoIterator<Item = TaskId>) -> Query<'static> {
    query.bind(codec::uuids(ids))
}

/// A statement that asks for kinds and keys.
pub(super) fn by_keys<'k>(
    query: Query<'static>,
    keys: impl IntoIterator<Item = (&'k Kind, &'k Key)>,
) -> Query<'static> {
    let names = keys
        .into_iter()
        .map(|(kind, key)| (codec::name(kind.as_str()), codec::name(key.as_str())));
    let (kinds, keys): (Vec<_>, Vec<_>) = names.unzip();
    query.bind(kinds).bind(keys)
}
