//! Writes that are guarded by the version of a row: steps, and renewed leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::SqliteConnection;

use super::{File, read, write};
use crate::store::sql::{self, Advanced, ensure};
use crate::store::{Guarded, Renewal, Step};
use crate::{State, TaskId, Timestamp};

pub(super) async fn advance(
    file: &File,
    steps: &[Step],
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let came = take(&mut writing, steps, now, history).await?;
    writing.commit().await?;
    Ok(came)
}

/// Takes steps within a transaction.
pub(super) async fn take(
    connection: &mut SqliteConnection,
    steps: &[Step],
    now: Timestamp,
    history: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let ids = || steps.iter().map(|step| step.id);
    let (rows, unreadable) = read::lean_by_ids(connection, ids()).await?;
    let Advanced {
        taken,
        hopped,
        ended,
        noted,
    } = sql::advance(rows, steps, now, history);
    let touched = write::hopped(connection, &hopped).await? + write::write(connection, &ended).await?;
    ensure("a step", touched, hopped.len() + ended.len())?;
    write::note(connection, &noted).await?;
    Ok(came(taken, ids(), &unreadable))
}

pub(super) async fn renew(
    file: &File,
    claims: &[Renewal],
    lease: Duration,
) -> Result<Vec<Guarded>, sqlx::Error> {
    let mut writing = file.writer.write().await?;
    let now = writing.now;
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
    write::renew(&mut writing, &held, now.after(lease), now).await?;
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
