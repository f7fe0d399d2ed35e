//! Looks at rows, and claims those that are due.

use std::collections::BTreeMap;

use super::codec;
use super::connections::Writing;
use super::{File, read, sql};
use crate::store::sql::{Look, ensure};
use crate::store::{Claim, Looked, Stamped, row};
use crate::{State, Task, Wake};

/// Claims what a look marked while the lock was held.
pub(super) async fn take(
    mut look: Look<'_>,
    writing: &mut Writing<'_>,
) -> Result<Stamped<Looked>, sqlx::Error> {
    let rows = read::by_ids(writing, look.due.iter().copied()).await?;
    look.found.claimed = claim(writing, rows, look.claim).await?;
    Ok(look.stamped())
}

pub(super) async fn arrive(
    file: &File,
    wakes: &[Wake],
    claim: &Claim,
) -> Result<Stamped<Looked>, sqlx::Error> {
    // Stale wake-ups and hops need no lock.
    let mut reading = file.readers.lend().await?;
    let now = file.clock.now();
    let mut rows = read::look(&mut reading, wakes.iter().map(|wake| wake.id)).await?;
    reading.give_back();
    let mut look = Look::new(claim, now);
    for wake in wakes {
        match rows.remove(&wake.id) {
            Some((State::Scheduled, row)) if row.wake.version == wake.version => look.at(row),
            _ => look.found.stale += 1,
        }
    }
    if look.due.is_empty() {
        return Ok(look.stamped());
    }

    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let Look { due, mut found, .. } = look;
    let mut rows = read::by_ids(&mut writing, due.iter().copied()).await?;
    // Since the look, somebody else may have had them, or the clock may have been set back.
    let versions: BTreeMap<_, _> = wakes.iter().map(|wake| (wake.id, wake.version)).collect();
    rows.retain(|row| row.state == State::Scheduled && versions.get(&row.id) == Some(&row.version));
    found.stale += due.len() - rows.len();
    let (due, early): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.due_at <= now);
    found.early.extend(early.iter().map(row::pending));
    found.claimed = self::claim(&mut writing, due, claim).await?;
    writing.commit().await?;
    Ok(Stamped { now, found })
}

pub(super) async fn ready(file: &File, claim: &Claim) -> Result<Stamped<Vec<Task>>, sqlx::Error> {
    let kinds = || claim.room.iter().filter(|(_, room)| **room > 0);
    let mut reading = file.readers.lend().await?;
    let now = file.clock.now();
    let mut any = false;
    for (kind, _) in kinds() {
        any = any || !read::due(&mut reading, kind, now, 1).await?.is_empty();
    }
    reading.give_back();
    if !any {
        let found = Vec::new();
        return Ok(Stamped { now, found });
    }

    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let mut due = Vec::new();
    for (kind, &room) in kinds() {
        due.extend(read::due(&mut writing, kind, now, room).await?);
    }
    let rows = read::by_ids(&mut writing, due).await?;
    let mut found = self::claim(&mut writing, rows, claim).await?;
    writing.commit().await?;
    found.sort_by_key(|task| (task.due_at, task.id));
    Ok(Stamped { now, found })
}

/// Claims rows that were read while the lock was held, each of them scheduled and due.
async fn claim(
    writing: &mut Writing<'_>,
    mut rows: Vec<Task>,
    claim: &Claim,
) -> Result<Vec<Task>, sqlx::Error> {
    if rows.is_empty() {
        return Ok(rows);
    }
    let now = writing.now;
    let until = now.after(claim.lease);
    let query = sqlx::query(sql::CLAIM)
        .bind(codec::ids(rows.iter().map(|row| row.id))?)
        .bind(claim.owner.to_string())
        .bind(until.as_millis())
        .bind(now.as_millis());
    let touched = query.execute(&mut **writing).await?.rows_affected();
    ensure("a claim", touched, rows.len())?;
    for row in &mut rows {
        row::enter(row, State::Running, now);
        row.attempt += 1;
        row.owner = Some(claim.owner.to_string());
        row.wake_at = Some(until);
    }
    Ok(rows)
}
