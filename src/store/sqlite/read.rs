//! Reads rows and changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, SqliteConnection};

use super::unreadable::{self, Unreadable};
use super::{File, codec, sql};
use crate::store::rows::Rows;
use crate::store::sql::{Held, Obstacle, Why};
use crate::store::{Ahead, Noted, Page, Pending, Stamped, Target, row};
use crate::{Key, Kind, State, Task, TaskId, Timestamp};

/// The rows of these ids, as they are.
pub(super) async fn by_ids(
    connection: &mut SqliteConnection,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Vec<SqliteRow>, sqlx::Error> {
    let query = sqlx::query(sql::BY_IDS).bind(codec::ids(ids)?);
    query.fetch_all(connection).await
}

/// The rows of these ids, for whoever may change them.
pub(super) async fn held_by_ids(
    connection: &mut SqliteConnection,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Held, sqlx::Error> {
    let mut held = Held::default();
    for row in by_ids(connection, ids).await? {
        match codec::task(&row) {
            Ok(task) => held.locked.push(task),
            Err(error) => held.obstacles.push(Obstacle {
                id: codec::id(&row, 0)?,
                key: None,
                why: Why::Garbled(error.to_string()),
            }),
        }
    }
    Ok(held)
}

/// The rows of these kinds and keys, of each its live one, else the newest, for whoever may change them.
pub(super) async fn held_by_keys(
    connection: &mut SqliteConnection,
    keys: &[(Kind, Key)],
) -> Result<Held, sqlx::Error> {
    let query = sqlx::query(sql::BY_KEYS).bind(codec::json(keys)?);
    let rows = query.fetch_all(connection).await?;
    let mut held = Held::default();
    for row in &rows {
        let key = keys.get(codec::length(row, codec::COLUMNS)?);
        match codec::task(row) {
            Ok(task) => held.locked.push(task),
            Err(error) => held.obstacles.push(Obstacle {
                id: codec::id(row, 0).unwrap_or(TaskId::from_bytes([0; 16])),
                key: key.cloned(),
                why: match row.try_get(codec::COLUMNS + 1)? {
                    true => Why::Garbled(error.to_string()),
                    false => Why::GarbledPast(error.to_string()),
                },
            }),
        }
    }
    Ok(held)
}

/// What is known of rows that a wake-up, a hop or a claim names.
#[derive(Default)]
pub(super) struct Looks {
    /// The state of each, and the wake-up that would hold for it.
    pub(super) rows: BTreeMap<TaskId, (State, Pending)>,
    /// How long their payloads are.
    pub(super) bytes: BTreeMap<TaskId, usize>,
    /// Those that cannot be read.
    pub(super) unreadable: BTreeSet<TaskId>,
}

/// What tells of these ids whether a wake-up, a hop or a claim still holds.
pub(super) async fn look(
    connection: &mut SqliteConnection,
    ids: impl IntoIterator<Item = TaskId>,
) -> Result<Looks, sqlx::Error> {
    let query = sqlx::query(sql::LOOK).bind(codec::ids(ids)?);
    let mut looks = Looks::default();
    for row in query.fetch_all(connection).await? {
        match codec::look(&row) {
            Ok((state, pending, bytes)) => {
                looks.bytes.insert(pending.wake.id, bytes);
                looks.rows.insert(pending.wake.id, (state, pending));
            }
            Err(_) => {
                looks.unreadable.insert(codec::id(&row, 0)?);
            }
        }
    }
    Ok(looks)
}

/// Rows in a state whose `wake_at` has passed, up to `limit` of each kind, without payload and headers; and how long
/// their payloads are.
pub(super) async fn overdue(
    connection: &mut SqliteConnection,
    unreadable: &Unreadable,
    state: State,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(Task, usize)>, sqlx::Error> {
    let query = sqlx::query(sql::OVERDUE)
        .bind(codec::number(state))
        .bind(now.as_millis())
        .bind(codec::limit(limit))
        .bind(unreadable.ids()?);
    let rows = query.fetch_all(connection).await?;
    Ok(unreadable.sound(&rows, |row| {
        Ok((codec::task(row)?, codec::length(row, codec::COLUMNS)?))
    }))
}

/// Ids, as the file has them, of rows in a state whose `wake_at` has passed, and their kinds: up to `limit` of each.
pub(super) async fn past(
    connection: &mut SqliteConnection,
    state: State,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(Vec<u8>, String)>, sqlx::Error> {
    let query = sqlx::query(sql::OVERDUE)
        .bind(codec::number(state))
        .bind(now.as_millis())
        .bind(codec::limit(limit))
        .bind("[]");
    let rows = query.fetch_all(connection).await?;
    let past = |row: &SqliteRow| (codec::raw_id(row), row.try_get(1).unwrap_or_default());
    Ok(rows.iter().map(past).collect())
}

/// Running rows that were last updated in the future, up to `limit` of each kind.
pub(super) async fn given_ahead(
    connection: &mut SqliteConnection,
    unreadable: &Unreadable,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<Task>, sqlx::Error> {
    let query = sqlx::query(sql::GIVEN_AHEAD)
        .bind(codec::number(State::Running))
        .bind(now.as_millis())
        .bind(codec::limit(limit));
    let rows = query.fetch_all(connection).await?;
    Ok(unreadable.sound(&rows, codec::task))
}

/// The ids of scheduled rows of a kind that are due, the longest due first; and how long their payloads are.
pub(super) async fn due(
    connection: &mut SqliteConnection,
    unreadable: &Unreadable,
    kind: &Kind,
    now: Timestamp,
    limit: usize,
) -> Result<Vec<(TaskId, usize)>, sqlx::Error> {
    let query = sqlx::query(sql::DUE)
        .bind(kind.as_str())
        .bind(now.as_millis())
        .bind(codec::limit(limit))
        .bind(unreadable.ids()?);
    let rows = query.fetch_all(connection).await?;
    Ok(unreadable.sound(&rows, |row| Ok((codec::id(row, 0)?, codec::length(row, 1)?))))
}

/// The scheduled rows that become due from now on, the earliest first.
pub(super) async fn look_ahead(
    connection: &mut SqliteConnection,
    unreadable: &Unreadable,
    now: Timestamp,
    ahead: Ahead,
) -> Result<Vec<Pending>, sqlx::Error> {
    let query = sqlx::query(sql::UPCOMING)
        .bind(codec::number(State::Scheduled))
        .bind(now.after(ahead.within).as_millis())
        .bind(Ahead::from(now).as_millis())
        .bind(codec::limit(ahead.limit))
        .bind(unreadable.ids()?);
    let rows = query.fetch_all(connection).await?;
    Ok(unreadable.sound(&rows, |row| Ok(row::pending(&codec::task(row)?))))
}

pub(super) async fn find(file: &File, target: &Target) -> Result<Option<Task>, sqlx::Error> {
    let mut reading = file.readers.lend().await?;
    let held = of_target(&mut reading, target).await?;
    reading.give_back();
    meant(target, held)
}

/// The rows that a target may mean.
pub(super) async fn of_target(
    connection: &mut SqliteConnection,
    target: &Target,
) -> Result<Held, sqlx::Error> {
    match target {
        Target::Id(id) => held_by_ids(connection, [*id]).await,
        Target::Key(kind, key) => held_by_keys(connection, &[(kind.clone(), key.clone())]).await,
    }
}

/// The row that a target means, of those that it may mean.
pub(super) fn meant(target: &Target, held: Held) -> Result<Option<Task>, sqlx::Error> {
    if let Some(Obstacle { why, .. }) = held.obstacles.into_iter().next() {
        return Err(sqlx::Error::Decode(why.into()));
    }
    let mut rows = Rows::default();
    rows.load(held.locked);
    Ok(rows.find(target).cloned())
}

pub(super) async fn list(file: &File, page: &Page) -> Result<Vec<Task>, sqlx::Error> {
    let (time, id) = match &page.after {
        Some((time, id)) => (time.as_millis(), id.as_bytes().to_vec()),
        None => (i64::MIN, Vec::new()),
    };
    let mut reading = file.readers.lend().await?;
    let mut tries = 0;
    loop {
        let query = sqlx::query(sql::LIST)
            .bind(page.kind.as_str())
            .bind(codec::number(page.state))
            .bind(time)
            .bind(id.clone())
            .bind(codec::limit(page.limit))
            .bind(file.unreadable.ids()?);
        let rows = query.fetch_all(&mut *reading).await?;
        let found = file.unreadable.sound(&rows, codec::task);
        // A page that is not full is the last one: so those that cannot be read must not make it so.
        tries += 1;
        if found.len() == rows.len() || tries == unreadable::TRIES {
            reading.give_back();
            return Ok(found);
        }
    }
}

/// What is noted of a row, of which anything may have become by others' hands.
pub(super) async fn noted(file: &File, id: TaskId) -> Result<Noted, sqlx::Error> {
    let mut reading = file.readers.lend().await?;
    let query = sqlx::query(sql::NOTED).bind(id.as_bytes().to_vec());
    let found = query.fetch_optional(&mut *reading).await?;
    reading.give_back();
    let Some(row) = found else {
        return Ok(Noted::default());
    };
    let text = |column| -> Result<Option<String>, sqlx::Error> {
        let bytes: Option<&[u8]> = row.try_get(column)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned()))
    };
    Ok(Noted {
        history: text(0)?.unwrap_or_default(),
        sent: text(1)?,
    })
}

pub(super) async fn kinds(
    file: &File,
    state: State,
    after: Option<&Kind>,
    limit: usize,
) -> Result<Vec<Kind>, sqlx::Error> {
    let mut reading = file.readers.lend().await?;
    let mut kinds: Vec<Kind> = Vec::new();
    while kinds.len() < limit {
        let last = kinds.last().or(after).map_or("", Kind::as_str);
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

/// How many rows of a kind and a state are due within each of these spans, up to `most`.
pub(super) async fn due_within(
    file: &File,
    kind: &Kind,
    state: State,
    spans: &[Duration],
    most: usize,
) -> Result<Stamped<Vec<usize>>, sqlx::Error> {
    let mut reading = file.readers.lend().await?;
    let now = file.clock.now();
    let times: Vec<_> = spans.iter().map(|span| now.after(*span).as_millis()).collect();
    let query = sqlx::query(sql::DUE_WITHIN)
        .bind(kind.as_str())
        .bind(codec::json(&times)?)
        .bind(codec::limit(most))
        .bind(codec::number(state));
    let counts = query.fetch_all(&mut *reading).await?;
    reading.give_back();
    let counts: Result<_, _> = counts.iter().map(|row| codec::length(row, 0)).collect();
    Ok(Stamped { now, found: counts? })
}
