//! What becomes of rows that a worker holds: hops, renewed leases, the ends of claims.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::SqliteConnection;

use super::codec::{self, Hex};
use super::{File, read, sql, write};
use crate::store::sql::{self as shared, ensure};
use crate::store::{Guarded, Hop, Renewal, Settlement};
use crate::{State, TaskId, Timestamp};

pub(super) async fn hop(file: &File, hops: &[Hop]) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let mut looks = read::look(&mut writing, hops.iter().map(|hop| hop.id)).await?;
    let (recorded, taken) = shared::hop(&mut looks.rows, hops, now);
    let recorded = came(recorded, hops.iter().map(|hop| hop.id), &looks.unreadable);
    if !taken.is_empty() {
        let values = taken
            .iter()
            .map(|(&id, (count, wake_at))| (Hex(id), count, wake_at));
        let query = sqlx::query(sql::HOP).bind(codec::json(&values.collect::<Vec<_>>())?);
        let touched = query.execute(&mut *writing).await?.rows_affected();
        ensure("a hop", touched, taken.len())?;
    }
    writing.commit().await?;
    Ok(recorded)
}

pub(super) async fn settle(
    file: &File,
    settlements: Vec<Settlement>,
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let settled = end(&mut writing, &settlements, now, history).await?;
    writing.commit().await?;
    Ok(settled)
}

/// Ends claims within a transaction.
pub(super) async fn end(
    connection: &mut SqliteConnection,
    settlements: &[Settlement],
    now: Timestamp,
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let ids = || settlements.iter().map(|settlement| settlement.id);
    let (rows, unreadable) = read::lean_by_ids(connection, ids()).await?;
    let (settled, ended) = shared::end(rows, settlements, now, history);
    let touched = write::write(connection, &ended).await?;
    ensure("a settlement", touched, ended.len())?;
    Ok(came(settled, ids(), &unreadable))
}

pub(super) async fn renew(
    file: &File,
    claims: &[Renewal],
    lease: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let until = writing.now.after(lease);
    let looks = read::look(&mut writing, claims.iter().map(|claim| claim.id)).await?;
    let mut held = BTreeMap::new();
    let mut renew = |claim: &Renewal| match looks.rows.get(&claim.id) {
        Some((State::Running, row)) if row.wake.version == claim.version => {
            *held.entry(claim.id).or_default() |= claim.started;
            true
        }
        _ => false,
    };
    let renewed = claims.iter().map(&mut renew).collect();
    let renewed = came(renewed, claims.iter().map(|claim| claim.id), &looks.unreadable);
    write::renew(&mut writing, &held, until).await?;
    writing.commit().await?;
    Ok(renewed)
}

/// What came of guarded writes of rows: of those that cannot be read nothing is known.
fn came(
    is_done: Vec<bool>,
    ids: impl Iterator<Item = TaskId>,
    unreadable: &BTreeSet<TaskId>,
) -> Vec<Guarded> {
    let came = |(is_done, id)| match is_done {
        true => Guarded::Done,
        false if unreadable.contains(&id) => Guarded::Blocked,
        false => Guarded::Lost,
    };
    is_done.into_iter().zip(ids).map(came).collect()
}
