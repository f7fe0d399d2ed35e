//! Reads rows and changes nothing.

use std::collections::BTreeMap;

use sqlx::SqliteConnection;

use super::{File, codec, sql};
use crate::store::rows::Rows;
use crate::store::{Ahead, Page, Pending, Stamped, row};
use crate::{Key, Kind, State, Target, Task, TaskId, Timestamp};

/// The rows of these ids.
pub(super) async fn by_ids(
    connection: &mut SqliteConnection,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Vec<Task>, sqlx::Error> {
    tasks(connection, sqlx::query(sql::BY_IDS).bind(codec::ids(ids)?)).await
}

/// What tells of these ids whether a wake-up or a claim still holds.
pub(super) async fn look(
    connection: &mut SqliteConnection,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<BTreeMap<TaskId, (State, Pending)>, sqlx::Error> {
    let query = sqlx::query(sql::LOOK).bind(codec::ids(ids)?);
    let rows = query.fetch_all(connection).await?;
    let looked = rows.iter().map(|row| {
        let (state, pending) = codec::look(row)?;
        Ok((pending.wake.id, (state, pending)))
    });
    looked.collect()
}

/// The rows of these ids without payload and headers.
pub(super) async fn lean_by_ids(
    connection: &mut SqliteConnection,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Vec<Task>, sqlx::Error> {
    tasks(connection, sqlx::query(sql::BY_IDS_LEAN).bind(codec::ids(ids)?)).await
}

/// The live and the newest rows of these kinds and keys.
pub(super) async fn by_keys(
    connection: &mut SqliteConnection,
    keys: &[(Kind, Key)],
) -> Result<Vec<Task>, sqlx::Error> {
    tasks(connection, sqlx::query(sql::BY_KEYS).bind(codec::json(keys)?)).await
}

/// Rows in a state whose `wake_at` has passed, up to `limit` of each kind, without payload and headers.
pub(super) async fn overdue(
    connection: &mut SqliteConnection,
    state: State,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<Task>, sqlx::Error> {
    let query = sqlx::query(sql::OVERDUE)
        .bind(codec::number(state))
        .bind(now.as_millis())
        .bind(codec::limit(limit));
    tasks(connection, query).await
}

/// The ids of scheduled rows of a kind that are due, the longest due first.
pub(super) async fn due(
    connection: &mut SqliteConnection,
    kind: &Kind,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<TaskId>, sqlx::Error> {
    let query = sqlx::query(sql::DUE)
        .bind(kind.as_str())
        .bind(now.as_millis())
        .bind(codec::limit(limit));
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(|row| codec::id(row, 0)).collect()
}

pub(super) async fn upcoming(file: &File, ahead: Ahead) -> Result<Stamped<Vec<Pending>>, sqlx::Error> {
    let mut reading = file.readers.lend().await?;
    let now = file.clock.now();
    let found = look_ahead(&mut reading, now, ahead).await?;
    reading.give_back();
    Ok(Stamped { now, found })
}

/// The scheduled rows that become due from now on, the earliest first.
pub(super) async fn look_ahead(
    connection: &mut SqliteConnection,
    now: Timestamp,
    ahead: Ahead,
) -> Result<Vec<Pending>, sqlx::Error> {
    let query = sqlx::query(sql::UPCOMING)
        .bind(codec::number(State::Scheduled))
        .bind(now.after(ahead.within).as_millis())
        .bind(Ahead::from(now).as_millis())
        .bind(codec::limit(ahead.limit));
    let found = tasks(connection, query).await?;
    Ok(found.iter().map(row::pending).collect())
}

pub(super) async fn find(file: &File, target: &Target) -> Result<Option<Task>, sqlx::Error> {
    let mut reading = file.readers.lend().await?;
    let found = of_target(&mut reading, target).await?;
    reading.give_back();
    let mut rows = Rows::default();
    rows.load(found);
    Ok(rows.find(target).cloned())
}

/// The rows that a target may mean.
pub(super) async fn of_target(
    connection: &mut SqliteConnection,
    target: &Target,
) -> Result<Vec<Task>, sqlx::Error> {
    match target {
        Target::Id(id) => by_ids(connection, [*id]).await,
        Target::Key(kind, key) => by_keys(connection, &[(kind.clone(), key.clone())]).await,
    }
}

pub(super) async fn list(file: &File, page: &Page) -> Result<Vec<Task>, sqlx::Error> {
    let (time, id) = match &page.after {
        Some((time, id)) => (time.as_millis(), id.as_bytes().to_vec()),
        None => (i64::MIN, Vec::new()),
    };
    let mut reading = file.readers.lend().await?;
    let query = sqlx::query(sql::LIST)
        .bind(page.kind.as_str())
        .bind(codec::number(page.state))
        .bind(time)
        .bind(id)
        .bind(codec::limit(page.limit));
    let found = tasks(&mut reading, query).await?;
    reading.give_back();
    Ok(found)
}

pub(super) async fn kinds(file: &File, state: State) -> Result<Vec<Kind>, sqlx::Error> {
    let mut reading = file.readers.lend().await?;
    let mut kinds: Vec<Kind> = Vec::new();
    loop {
        let last = kinds.last().map_or("", Kind::as_str);
        let query = sqlx::query(sql::NEXT_KIND)
            .bind(codec::number(state))
            .bind(last.to_owned());
        let Some(next) = query.fetch_optional(&mut *reading).await? else {
            break;
        };
        kinds.push(codec::kind(&next, 0)?);
    }
    reading.give_back();
    Ok(kinds)
}

type Query = sqlx::query::Query<'static, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>;

async fn tasks(connection: &mut SqliteConnection, query: Query) -> Result<Vec<Task>, sqlx::Error> {
    let rows = query.fetch_all(connection).await?;
    rows.iter().map(codec::task).collect()
}
