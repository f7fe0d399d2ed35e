//! Looks at rows, and claims those that are due.

use std::collections::BTreeMap;

use super::connections::Writing;
use super::{File, codec, read, sql, unreadable, write};
use crate::backend::Wake;
use crate::store::sql::{Look, ensure};
use crate::store::{Claim, Looked, Stamped, row};
use crate::{Kind, State, Task};

/// Claims what a look marked while the lock was held.
pub(super) async fn take(
    mut look: Look<'_>,
    file: &File,
    writing: &mut Writing,
) -> Result<Stamped<Looked>, sqlx::Error> {
    let rows = read::by_ids(writing, look.due.iter().copied()).await?;
    let rows = file.unreadable.tasks(&rows);
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
    let mut looks = read::look(&mut reading, wakes.iter().map(|wake| wake.id)).await?;
    reading.give_back();
    let mut look = Look::new(claim, now);
    for wake in wakes {
        let bytes = looks.bytes.get(&wake.id).copied().unwrap_or_default();
        match looks.rows.remove(&wake.id) {
            Some((State::Scheduled, row)) if row.wake.version == wake.version => look.at(row, bytes),
            _ => look.found.stale += 1,
        }
    }
    if look.due.is_empty() {
        return Ok(look.stamped());
    }

    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let Look { due, mut found, .. } = look;
    let rows = read::by_ids(&mut writing, due.iter().copied()).await?;
    found.stale += due.len() - rows.len();
    let mut rows = file.unreadable.tasks(&rows);
    // Since the look, somebody else may have had them, or the clock may have been set back.
    let versions: BTreeMap<_, _> = wakes.iter().map(|wake| (wake.id, wake.version)).collect();
    let count = rows.len();
    rows.retain(|row| row.state == State::Scheduled && versions.get(&row.id) == Some(&row.version));
    found.stale += count - rows.len();
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
        let due = read::due(&mut reading, &file.unreadable, kind, now, 1);
        any = any || !due.await?.is_empty();
    }
    reading.give_back();
    if !any {
        let found = Vec::new();
        return Ok(Stamped { now, found });
    }

    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let mut bytes = claim.bytes;
    let mut found = Vec::new();
    for (kind, &room) in kinds() {
        found.extend(due(file, &mut writing, kind, room, &mut bytes).await?);
    }
    let mut found = self::claim(&mut writing, found, claim).await?;
    writing.commit().await?;
    found.sort_by_key(|task| (task.due_at, task.id));
    Ok(Stamped { now, found })
}

/// Due rows of a kind, as many as there is room for in all and in bytes.
async fn due(
    file: &File,
    writing: &mut Writing,
    kind: &Kind,
    room: usize,
    bytes: &mut usize,
) -> Result<Vec<Task>, sqlx::Error> {
    let now = writing.now;
    let mut tries = 0;
    loop {
        let mut left = *bytes;
        let mut due = Vec::new();
        for (id, length) in read::due(writing, &file.unreadable, kind, now, room).await? {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(length);
            due.push(id);
        }
        let rows = read::by_ids(writing, due).await?;
        let tasks = file.unreadable.tasks(&rows);
        tries += 1;
        // Others are behind those that cannot be read, which are left out from now on.
        if tasks.len() == rows.len() || tries == unreadable::TRIES {
            *bytes = left;
            return Ok(tasks);
        }
    }
}

/// Claims rows that were read while the lock was held, each of them scheduled and due.
async fn claim(writing: &mut Writing, mut rows: Vec<Task>, claim: &Claim) -> Result<Vec<Task>, sqlx::Error> {
    if rows.is_empty() {
        return Ok(rows);
    }
    let now = writing.now;
    let query = sqlx::query(sql::CLAIM)
        .bind(codec::ids(rows.iter().map(|row| row.id))?)
        .bind(claim.owner.to_string())
        .bind(now.after(claim.lease).as_millis())
        .bind(now.as_millis());
    let touched = query.execute(&mut **writing).await?.rows_affected();
    ensure("a claim", touched, rows.len())?;
    for row in &mut rows {
        row::claim(row, claim, now);
    }
    write::note(writing, &claim.noted(&rows, now)).await?;
    Ok(rows)
}
