//! Looks at rows, and claims those that are due.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::Database;
use super::sql::what;
use super::{codec, read};
use crate::store::{Claim, Looked, Stamped};
use crate::{Task, Timestamp, Wake};

pub(super) async fn arrive(
    database: &Database,
    wakes: &[Wake],
    claim: &Claim,
) -> Result<Stamped<Looked>, sqlx::Error> {
    let arrive = || async {
        let versions = wakes.iter().map(|wake| codec::stored_version(wake.version));
        let (kinds, room) = room(claim);
        let query = sqlx::query(database.statements.arrive.clone())
            .bind(codec::uuids(wakes.iter().map(|wake| wake.id)))
            .bind(versions.collect::<Vec<_>>())
            .bind(kinds)
            .bind(room)
            .bind(codec::text(&claim.owner))
            .bind(codec::span(claim.lease));
        query.fetch_all(&database.pool).await
    };
    looked(&database.retried(arrive).await?)
}

pub(super) async fn ready(database: &Database, claim: &Claim) -> Result<Stamped<Vec<Task>>, sqlx::Error> {
    let ready = || async {
        let (kinds, room) = room(claim);
        let query = sqlx::query(database.statements.ready.clone())
            .bind(kinds)
            .bind(room)
            .bind(codec::text(&claim.owner))
            .bind(codec::span(claim.lease));
        query.fetch_all(&database.pool).await
    };
    let rows = database.retried(ready).await?;
    let (now, rows) = read::stamped(&rows)?;
    let mut found: Vec<_> = rows.filter_map(|row| claimed(row, 1)).collect();
    found.sort_by_key(|task| (task.due_at, task.id));
    Ok(Stamped { now, found })
}

/// The kinds that a claim has room for, and how much.
pub(super) fn room(claim: &Claim) -> (Vec<&str>, Vec<i64>) {
    let some = claim.room.iter().filter(|(_, room)| **room > 0);
    some.map(|(kind, room)| (kind.as_str(), codec::limit(*room)))
        .unzip()
}

/// What a look found, as `arrive` and `sweep` tell it.
pub(super) fn looked(rows: &[PgRow]) -> Result<Stamped<Looked>, sqlx::Error> {
    let mut now = None;
    let mut found = Looked::default();
    for row in rows {
        let number: i64 = row.try_get(1)?;
        let count = usize::try_from(number).unwrap_or(0);
        let pending = || codec::pending(row, [2, 3, 4, 6, 7, 8]);
        match row.try_get(0)? {
            what::CLAIMED => found.claimed.extend(claimed(row, 2)),
            what::EARLY => found.early.push(pending()?),
            what::WAITING => *found.waiting.entry(codec::kind(row, 3)?).or_default() += count,
            what::STALE => found.stale = count,
            what::EXPIRED => found.expired = count,
            what::AHEAD => found.ahead.push(pending()?),
            what::NOW => now = Some(Timestamp::from_millis(number)),
            other => return Err(sqlx::Error::Protocol(format!("a look told {other}"))),
        }
    }
    let now = now.ok_or(sqlx::Error::RowNotFound)?;
    Ok(Stamped { now, found })
}

/// A row that has been claimed. One that somebody has edited until it cannot be read is left to the end of its lease:
/// it must not keep the others of its batch from running.
fn claimed(row: &PgRow, before: usize) -> Option<Task> {
    match codec::task(row, before) {
        Ok(task) => Some(task),
        Err(error) => {
            let id = codec::id(row, before).ok();
            tracing::error!(?id, %error, "a row cannot be read: it does not run");
            None
        }
    }
}
