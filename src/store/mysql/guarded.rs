//! Writes that are guarded by the version of a row: steps, and renewed leases.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use sqlx::MySqlConnection;

use super::codec::{self, Hex};
use super::connections::Writing;
use super::{Server, advance, errors, read, write};
use crate::store::sql::{Why, by_parts, ensure};
use crate::store::{Guarded, Renewal, Step};
use crate::{State, Task, TaskId, Timestamp};

pub(super) async fn advance(
    server: &Server,
    steps: &[Step],
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    each(steps, |steps: Vec<Step>| async move {
        let advance = || advance_once(server, &steps, history);
        server.pools.retried(advance).await
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
    let blame = |error: &_| errors::blame(error).filter(|why| matches!(why, Why::Locked(_)));
    let write = |batch| {
        let written = write(batch);
        async { Ok(written.await?.into_iter().map(Ok).collect()) }
    };
    let written = by_parts(vec![batch.to_vec()], blame, write).await?;
    let came = written.into_iter().map(|came| came.unwrap_or(Guarded::Blocked));
    Ok(came.collect())
}

/// What came of a guarded write: whether it was made, and of those that were not, whether somebody else has the row
/// locked, which is still in that state and of that version.
fn came(
    is_done: bool,
    blocked: &BTreeMap<TaskId, (State, u64)>,
    id: TaskId,
    expected: (State, u64),
) -> Guarded {
    match is_done {
        true => Guarded::Done,
        false if blocked.get(&id) == Some(&expected) => Guarded::Blocked,
        false => Guarded::Lost,
    }
}

/// Of rows that could not be locked, those that are there, each with its state and version.
async fn blocked(
    connection: &mut MySqlConnection,
    server: &Server,
    asked: impl Iterator<Item = TaskId>,
    locked: impl Iterator<Item = TaskId>,
) -> Result<BTreeMap<TaskId, (State, u64)>, sqlx::Error> {
    let mut ids: BTreeSet<_> = asked.collect();
    for id in locked {
        ids.remove(&id);
    }
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let looked = read::look(connection, &server.sql.look, ids).await?;
    let rows = looked.rows.into_iter();
    Ok(rows
        .map(|(id, (state, row, _))| (id, (state, row.wake.version)))
        .collect())
}

async fn advance_once(
    server: &Server,
    steps: &[Step],
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut writing = Writing::begin(&server.pools.workers).await?;
    let sql = &server.sql;
    let ids = || steps.iter().map(|step| step.id);
    let read = read::sound_by_ids(&mut writing, &sql.lean_unlocked, ids()).await?;
    let locked = read.rows.iter().map(|row| row.id);
    let blocked = blocked(&mut writing, server, ids(), locked).await?;
    let renewed = read.rows.iter().filter(|row| row.started).map(|row| row.id);
    let renewed: BTreeSet<_> = renewed.collect();
    let taken = match read.now {
        Some(now) => take(&mut writing, server, read.rows, steps, now, history).await?,
        None => vec![false; steps.len()],
    };
    // A claim that is no more has no lease to forget: what was renewed is another's.
    let has_ended = |(step, is_taken): &(&Step, &bool)| **is_taken && step.event.needs() == State::Running;
    let ended = steps.iter().zip(&taken).filter(has_ended);
    let ended = ended.map(|(step, _)| step.id).filter(|id| renewed.contains(id));
    write::forget(&mut writing, sql, ended).await?;
    writing.commit().await?;
    let came = |(step, is_taken): (&Step, bool)| {
        came(is_taken, &blocked, step.id, (step.event.needs(), step.version))
    };
    Ok(steps.iter().zip(taken).map(came).collect())
}

/// Takes steps of rows that are locked.
pub(super) async fn take(
    connection: &mut MySqlConnection,
    server: &Server,
    rows: Vec<Task>,
    steps: &[Step],
    now: Timestamp,
    history: Duration,
) -> Result<Vec<bool>, sqlx::Error> {
    let advance::Advanced {
        taken,
        hopped,
        ended,
        noted,
    } = advance::advance(rows, steps, now, history);
    let sql = &server.sql;
    let written = write::hopped(connection, sql, &hopped).await?;
    let written = written + write::write(connection, sql, &ended).await?;
    ensure("a step", written, hopped.len() + ended.len())?;
    write::note(connection, sql, &noted).await?;
    Ok(taken)
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
    let blocked = blocked(&mut writing, server, ids(), locked).await?;
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
        came(is_done, &blocked, claim.id, (State::Running, claim.version))
    };
    let renewed = claims.iter().map(renew).collect();
    if let Some(now) = looked.now.filter(|_| !held.is_empty()) {
        let values = held
            .iter()
            .map(|(&(id, version), &started)| (Hex(id), version, i32::from(started)));
        let query = read::query(&server.sql.renew)
            .bind(now.after(lease).as_millis())
            .bind(now.as_millis())
            .bind(codec::json(&values.collect::<Vec<_>>())?);
        query.execute(&mut *writing).await?;
    }
    writing.commit().await?;
    Ok(renewed)
}
