//! What becomes of rows that a worker holds: hops, renewed leases, the ends of claims.

use std::collections::BTreeSet;
use std::time::Duration;

use sqlx::MySqlConnection;

use super::codec::{self, Hex};
use super::sql::Sql;
use super::{Server, read, write};
use crate::store::sql::{self, ensure};
use crate::store::{Hop, Renewal, Settlement};
use crate::{State, TaskId, Timestamp};

pub(super) async fn hop(server: &Server, hops: &[Hop]) -> Result<Vec<bool>, sqlx::Error> {
    let mut tries = 0;
    loop {
        match hop_once(server, hops).await {
            Err(error) => server.connections.pause_after(error, &mut tries).await?,
            recorded => return recorded,
        }
    }
}

async fn hop_once(server: &Server, hops: &[Hop]) -> Result<Vec<bool>, sqlx::Error> {
    let mut writing = server.connections.begin().await?;
    let ids = hops.iter().map(|hop| hop.id);
    let mut looked = read::look(&mut writing, &server.sql.look_locked, ids).await?;
    let (recorded, taken) = match looked.now {
        Some(now) => sql::hop(&mut looked.rows, hops, now),
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
    Ok(recorded)
}

pub(super) async fn settle(
    server: &Server,
    settlements: Vec<Settlement>,
    history: Duration,
) -> Result<Vec<bool>, sqlx::Error> {
    let mut tries = 0;
    loop {
        match settle_once(server, settlements.clone(), history).await {
            Err(error) => server.connections.pause_after(error, &mut tries).await?,
            settled => return settled,
        }
    }
}

async fn settle_once(
    server: &Server,
    settlements: Vec<Settlement>,
    history: Duration,
) -> Result<Vec<bool>, sqlx::Error> {
    let mut writing = server.connections.begin().await?;
    let ids = settlements.iter().map(|settlement| settlement.id);
    let read = read::by_ids(&mut writing, &server.sql.lean_locked, ids).await?;
    let settled = match read.now {
        Some(now) => end(&mut writing, &server.sql, read.rows, settlements, now, history).await?,
        None => vec![false; settlements.len()],
    };
    writing.commit().await?;
    Ok(settled)
}

/// Ends claims of rows that are locked.
pub(super) async fn end(
    connection: &mut MySqlConnection,
    statements: &Sql,
    rows: Vec<crate::Task>,
    settlements: Vec<Settlement>,
    now: Timestamp,
    history: Duration,
) -> Result<Vec<bool>, sqlx::Error> {
    let (settled, ended) = sql::end(rows, settlements, now, history);
    let touched = write::write(connection, statements, &ended).await?;
    ensure("a settlement", touched, ended.len())?;
    Ok(settled)
}

pub(super) async fn renew(
    server: &Server,
    claims: &[(TaskId, u64)],
    lease: Duration,
) -> Result<Vec<Renewal>, sqlx::Error> {
    let mut tries = 0;
    loop {
        match renew_once(server, claims, lease).await {
            Err(error) => server.connections.pause_after(error, &mut tries).await?,
            renewed => return renewed,
        }
    }
}

async fn renew_once(
    server: &Server,
    claims: &[(TaskId, u64)],
    lease: Duration,
) -> Result<Vec<Renewal>, sqlx::Error> {
    let mut writing = server.connections.begin().await?;
    let ids: BTreeSet<_> = claims.iter().map(|&(id, _)| id).collect();
    let unlocked = read::look(&mut writing, &server.sql.look_unlocked, ids.iter().copied()).await?;
    let others = ids.into_iter().filter(|id| !unlocked.rows.contains_key(id));
    let others: Vec<_> = others.collect();
    let locked = match others.is_empty() {
        true => read::Looks::new(),
        false => read::look(&mut writing, &server.sql.look, others).await?.rows,
    };
    let mut held = BTreeSet::new();
    let renew = |&(id, version): &(TaskId, u64)| {
        let holds = |rows: &read::Looks| {
            let row = rows.get(&id);
            row.is_some_and(|(state, row)| *state == State::Running && row.wake.version == version)
        };
        if holds(&unlocked.rows) {
            held.insert(id);
            return Renewal::Renewed;
        }
        if holds(&locked) {
            return Renewal::Locked;
        }
        Renewal::Lost
    };
    let renewed = claims.iter().map(renew).collect();
    if let Some(now) = unlocked.now {
        write::wake_at(&mut writing, &server.sql, &held, now.after(lease)).await?;
    }
    writing.commit().await?;
    Ok(renewed)
}
