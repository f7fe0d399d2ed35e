//! Looks at rows, and claims those that are due.

use sqlx::Row;
use sqlx::postgres::PgRow;

use super::connections::{Database, fetch};
use super::sql::what;
use super::{codec, read};
use crate::backend::Wake;
use crate::store::{Claim, Looked, Stamped};
use crate::{Task, TaskId, Timestamp};

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
            .bind(codec::span(claim.lease))
            .bind(codec::limit(claim.bytes))
            .bind(claim.claimed());
        fetch(&database.workers, query).await
    };
    Ok(sight(&database.retried(arrive).await?)?.looked)
}

pub(super) async fn ready(database: &Database, claim: &Claim) -> Result<Stamped<Vec<Task>>, sqlx::Error> {
    let ready = || async {
        let (kinds, room) = room(claim);
        let query = sqlx::query(database.statements.ready.clone())
            .bind(kinds)
            .bind(room)
            .bind(codec::text(&claim.owner))
            .bind(codec::span(claim.lease))
            .bind(codec::limit(claim.bytes))
            .bind(claim.claimed());
        fetch(&database.workers, query).await
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

/// A look, and the claims whose leases have ended as far as it can see.
pub(super) struct Sight {
    pub(super) looked: Stamped<Looked>,
    pub(super) ended: Vec<(TaskId, i64)>,
}

/// What a look found, as `arrive` and `sweep` tell it.
pub(super) fn sight(rows: &[PgRow]) -> Result<Sight, sqlx::Error> {
    let mut now = None;
    let mut found = Looked::default();
    let mut ended = Vec::new();
    for row in rows {
        let number: i64 = row.try_get(1)?;
        let count = usize::try_from(number).unwrap_or(0);
        let pending = || codec::sound(row, 2, codec::pending(row, [2, 3, 4, 6, 7, 8]));
        match row.try_get(0)? {
            what::CLAIMED => found.claimed.extend(claimed(row, 2)),
            what::EARLY => found.early.extend(pending()),
            what::WAITING => *found.waiting.entry(codec::kind(row, 3)?).or_default() += count,
            what::STALE => found.stale = count,
            what::ENDED => ended.push((codec::id(row, 2)?, row.try_get(6)?)),
            what::AHEAD => found.ahead.extend(pending()),
            what::NOW => now = Some(Timestamp::from_millis(number)),
            other => return Err(sqlx::Error::Protocol(format!("a look told {other}"))),
        }
    }
    let now = now.ok_or(sqlx::Error::RowNotFound)?;
    let looked = Stamped { now, found };
    Ok(Sight { looked, ended })
}

/// A row that has been claimed. One that makes no sense is left to the end of its lease.
fn claimed(row: &PgRow, before: usize) -> Option<Task> {
    codec::sound(row, before, codec::task(row, before))
}
