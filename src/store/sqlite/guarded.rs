//! Writes that are guarded by the version of a row: steps, and renewed leases.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::SqliteConnection;

use super::{File, read, transitions, write};
use crate::store::sql;
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
    let mut is_taken = vec![false; steps.len()];
    for places in sql::rounds(steps.iter().map(|step| step.id)) {
        let round = places.iter().map(|&place| &steps[place]);
        let taken = transitions::advance(connection, round, now, history).await?;
        for place in places {
            is_taken[place] = taken.contains(&steps[place].id);
        }
    }
    let missed = steps.iter().zip(&is_taken).filter(|(_, is_taken)| !**is_taken);
    let missed: Vec<_> = missed.map(|(step, _)| step.id).collect();
    let mut unreadable = BTreeSet::new();
    if !missed.is_empty() {
        unreadable = read::look(connection, missed).await?.unreadable;
    }
    Ok(came(is_taken, steps.iter().map(|step| step.id), &unreadable))
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
