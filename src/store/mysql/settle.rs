//! What becomes of rows that a worker holds: hops, renewed leases, the ends of claims.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use sqlx::MySqlConnection;

use super::codec::{self, Hex};
use super::connections::Writing;
use super::{Server, errors, read, write};
use crate::store::sql::{self, Why, by_parts, ensure};
use crate::store::{Guarded, Hop, Renewal, Settlement};
use crate::{State, Task, TaskId, Timestamp};

pub(super) async fn hop(server: &Server, hops: &[Hop]) -> Result<Vec<Guarded>, sqlx::Error> {
    each(hops, |hops: Vec<Hop>| async move {
        server.pools.retried(|| hop_once(server, &hops)).await
    })
    .await
}

/// What came of each of a batch. Also a row that is not locked may have an entry in an index that somebody else has
/// locked: it is blocked then, and the others go on.
async fn each<T, F>(batch: &[T], write: impl Fn(Vec<T>) -> F) -> Result<Vec<Guarded>, sqlx::Error>
where
    T: Clone,
    F: Future<Output = Result<Vec<Guarded>, sqlx::Error>>,
{
    let blame = |error: &_| errors::blame(error).filter(|why| matches!(why, Why::Locked));
    let write = |batch| {
        let written = write(batch);
        async { Ok(written.await?.into_iter().map(Ok).collect()) }
    };
    let written = by_parts(vec![batch.to_vec()], blame, write).await?;
    let came = written.into_iter().map(|came| came.unwrap_or(Guarded::Blocked));
    Ok(came.collect())
}

/// What came of a guarded write: whether it was made, and of those that were not, whether somebody else has the row
/// locked, which is still of the version.
fn came(is_done: bool, blocked: &BTreeMap<TaskId, u64>, id: TaskId, version: u64) -> Guarded {
    match is_done {
        true => Guarded::Done,
        false if blocked.get(&id) == Some(&version) => Guarded::Blocked,
        false => Guarded::Lost,
    }
}

/// Of rows that could not be locked, those that are there in a state, each with its version.
async fn blocked(
    connection: &mut MySqlConnection,
    server: &Server,
    asked: impl Iterator<Item = TaskId>,
    locked: impl Iterator<Item = TaskId>,
    state: State,
) -> Result<BTreeMap<TaskId, u64>, sqlx::Error> {
    let mut ids: BTreeSet<_> = asked.collect();
    for id in locked {
        ids.remove(&id);
    }
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let looked = read::look(connection, &server.sql.look, ids).await?;
    let rows = looked.rows.into_iter().filter(|(_, (is, ..))| *is == state);
    Ok(rows.map(|(id, (_, row, _))| (id, row.wake.version)).collect())
}

async fn hop_once(server: &Server, hops: &[Hop]) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut writing = Writing::begin(&server.pools.workers).await?;
    let ids = || hops.iter().map(|hop| hop.id);
    let looked = read::look(&mut writing, &server.sql.look_unlocked, ids()).await?;
    let locked = looked.rows.keys().copied();
    let blocked = blocked(&mut writing, server, ids(), locked, State::Scheduled).await?;
    let rows = looked
        .rows
        .into_iter()
        .map(|(id, (state, row, _))| (id, (state, row)));
    let mut rows: BTreeMap<_, _> = rows.collect();
    let (recorded, taken) = match looked.now {
        Some(now) => sql::hop(&mut rows, hops, now),
        None => (vec![false; hops.len()], Default::default()),
    };
    if !taken.is_empty() {
        let values = taken
            .iter()
            .map(|(&id, (count, wake_at))| (Hex::Id(id), count, wake_at));
        let query = read::query(&server.sql.hop).bind(codec::json(&values.collect::<Vec<_>>())?);
        let touched = query.execute(&mut *writing).await?.rows_affected();
        ensure("a hop", touched, taken.len())?;
    }
    writing.commit().await?;
    let came = |(hop, is_done): (&Hop, bool)| came(is_done, &blocked, hop.id, hop.version);
    Ok(hops.iter().zip(recorded).map(came).collect())
}

pub(super) async fn settle(
    server: &Server,
    settlements: &[Settlement],
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    each(settlements, |settlements: Vec<Settlement>| async move {
        let settle = || settle_once(server, &settlements, history);
        server.pools.retried(settle).await
    })
    .await
}

async fn settle_once(
    server: &Server,
    settlements: &[Settlement],
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut writing = Writing::begin(&server.pools.workers).await?;
    let sql = &server.sql;
    let ids = || settlements.iter().map(|settlement| settlement.id);
    let read = read::sound_by_ids(&mut writing, &sql.lean_unlocked, ids()).await?;
    let locked = read.rows.iter().map(|row| row.id);
    let blocked = blocked(&mut writing, server, ids(), locked, State::Running).await?;
    let renewed: Vec<_> = read
        .rows
        .iter()
        .filter(|row| row.started)
        .map(|row| row.id)
        .collect();
    let settled = match read.now {
        Some(now) => end(&mut writing, server, read.rows, settlements, now, history).await?,
        None => vec![false; settlements.len()],
    };
    write::forget(&mut writing, sql, renewed).await?;
    writing.commit().await?;
    let came = |(settlement, is_done): (&Settlement, bool)| {
        came(is_done, &blocked, settlement.id, settlement.version)
    };
    Ok(settlements.iter().zip(settled).map(came).collect())
}

/// Ends claims of rows that are locked.
pub(super) async fn end(
    connection: &mut MySqlConnection,
    server: &Server,
    rows: Vec<Task>,
    settlements: &[Settlement],
    now: Timestamp,
    history: Duration,
) -> Result<Vec<bool>, sqlx::Error> {
    let (settled, ended) = sql::end(rows, settlements, now, history);
    let touched = write::write(connection, &server.sql, &ended).await?;
    ensure("a settlement", touched, ended.len())?;
    Ok(settled)
}

pub(super) async fn renew(
    server: &Server,
    claims: &[Renewal],
    lease: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let renew = || renew_once(server, claims, lease);
    server.pools.retried(renew).await
}

/// Renews claims whose rows can be locked, so that nobody ends their leases meanwhile; the rows stay as they are.
async fn renew_once(
    server: &Server,
    claims: &[Renewal],
    lease: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut writing = Writing::begin(&server.pools.workers).await?;
    let ids = || claims.iter().map(|claim| claim.id);
    let looked = read::look(&mut writing, &server.sql.look_unlocked, ids()).await?;
    let locked = looked.rows.keys().copied();
    let blocked = blocked(&mut writing, server, ids(), locked, State::Running).await?;
    let mut held = BTreeMap::new();
    let renew = |claim: &Renewal| {
        let row = looked.rows.get(&claim.id);
        let holds = |(state, row, _): &(State, crate::store::Pending, usize)| {
            *state == State::Running && row.wake.version == claim.version
        };
        let is_done = row.is_some_and(holds);
        if is_done {
            *held.entry((claim.id, claim.version)).or_insert(false) |= claim.started;
        }
        came(is_done, &blocked, claim.id, claim.version)
    };
    let renewed = claims.iter().map(renew).collect();
    if let Some(now) = looked.now.filter(|_| !held.is_empty()) {
        let values = held
            .iter()
            .map(|(&(id, version), &started)| (Hex::Id(id), version, i32::from(started)));
        let query = read::query(&server.sql.renew)
            .bind(now.after(lease).as_millis())
            .bind(now.as_millis())
            .bind(codec::json(&values.collect::<Vec<_>>())?);
        query.execute(&mut *writing).await?;
    }
    writing.commit().await?;
    Ok(renewed)
}
