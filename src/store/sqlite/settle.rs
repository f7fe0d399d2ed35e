//! What becomes of rows that a worker holds: hops, renewed leases, the ends of claims.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::SqliteConnection;

use super::codec::{self, Hex};
use super::{File, read, sql, write};
use crate::store::sql::{self as shared, ensure};
use crate::store::{Hop, Renewal, Settlement};
use crate::{State, TaskId, Timestamp};

pub(super) async fn hop(file: &File, hops: &[Hop]) -> Result<Vec<bool>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let mut rows = read::look(&mut writing, hops.iter().map(|hop| hop.id)).await?;
    let (recorded, taken) = shared::hop(&mut rows, hops, now);
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
) -> Result<Vec<bool>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let settled = end(&mut writing, settlements, now, history).await?;
    writing.commit().await?;
    Ok(settled)
}

/// Ends claims within a transaction.
pub(super) async fn end(
    connection: &mut SqliteConnection,
    settlements: Vec<Settlement>,
    now: Timestamp,
    history: Duration,
) -> Result<Vec<bool>, sqlx::Error> {
    let ids = settlements.iter().map(|settlement| settlement.id);
    let rows = read::lean_by_ids(connection, ids).await?;
    let (settled, ended) = shared::end(rows, settlements, now, history);
    let touched = write::write(connection, &ended).await?;
    ensure("a settlement", touched, ended.len())?;
    Ok(settled)
}

pub(super) async fn renew(
    file: &File,
    claims: &[(TaskId, u64)],
    lease: Duration,
) -> Result<Vec<Renewal>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let until = writing.now.after(lease);
    let rows = read::look(&mut writing, claims.iter().map(|&(id, _)| id)).await?;
    let mut held = BTreeSet::new();
    let mut renew = |&(id, version): &(TaskId, u64)| {
        let row = rows.get(&id);
        if row.is_some_and(|(state, row)| *state == State::Running && row.wake.version == version) {
            held.insert(id);
            return Renewal::Renewed;
        }
        Renewal::Lost
    };
    let renewed = claims.iter().map(&mut renew).collect();
    write::wake_at(&mut writing, &held, until).await?;
    writing.commit().await?;
    Ok(renewed)
}
