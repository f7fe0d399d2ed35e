//! Looks at rows, and claims those that are due.

use std::collections::BTreeMap;

use sqlx::AssertSqlSafe;

use super::connections::Writing;
use super::{File, codec, read, sql, unreadable, write};
use crate::backend::Wake;
use crate::store::sql::{Look, ensure};
use crate::store::{Claim, Looked, Pending, Stamped};
use crate::{Kind, State, Task, TaskId};

/// Claims what a look marked while the lock was held.
pub(super) async fn take(
    mut look: Look<'_>,
    file: &File,
    writing: &mut Writing,
) -> Result<Stamped<Looked>, sqlx::Error> {
    look.found.claimed = claim(file, writing, &look.due, look.claim).await?;
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
    let versions: BTreeMap<_, _> = wakes.iter().map(|wake| (wake.id, wake.version)).collect();
    let claimed = claim_all(file, &mut writing, &due, claim).await?;
    let is_as_it_was = |task: &Task| versions.get(&task.id) == Some(&(task.version - 1));
    if claimed.len() == due.len() && claimed.iter().all(is_as_it_was) {
        note(&mut writing, claim, &claimed).await?;
        writing.commit().await?;
        found.claimed = claimed;
        return Ok(Stamped { now, found });
    }
    // Since the look, somebody else may have had them, or the clock may have been set back.
    sqlx::query(sql::UNDO).execute(&mut *writing).await?;
    let looks = read::look(&mut writing, due.iter().copied()).await?;
    let holds = |(state, row): &(State, Pending)| {
        *state == State::Scheduled && versions.get(&row.wake.id) == Some(&row.wake.version)
    };
    let rows = looks.rows.into_values().filter(holds).map(|(_, row)| row);
    let (due_now, early): (Vec<_>, Vec<_>) = rows.partition(|row| row.due_at <= now);
    found.stale += due.len() - due_now.len() - early.len();
    found.early.extend(early);
    let due_now: Vec<_> = due_now.into_iter().map(|row| row.wake.id).collect();
    found.claimed = self::claim(file, &mut writing, &due_now, claim).await?;
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
        found.extend(due(file, &mut writing, claim, kind, room, &mut bytes).await?);
    }
    writing.commit().await?;
    found.sort_by_key(|task| (task.due_at, task.id));
    Ok(Stamped { now, found })
}

/// Claims due rows of a kind, as many as there is room for in all and in bytes.
async fn due(
    file: &File,
    writing: &mut Writing,
    claim: &Claim,
    kind: &Kind,
    room: usize,
    bytes: &mut usize,
) -> Result<Vec<Task>, sqlx::Error> {
    let now = writing.now;
    let mut found = Vec::new();
    for _ in 0..unreadable::TRIES {
        let mut left = *bytes;
        let mut due = Vec::new();
        for (id, length) in read::due(writing, &file.unreadable, kind, now, room - found.len()).await? {
            if left == 0 {
                break;
            }
            left = left.saturating_sub(length);
            due.push(id);
        }
        let claimed = self::claim(file, writing, &due, claim).await?;
        let is_all = claimed.len() == due.len();
        *bytes = claimed
            .iter()
            .fold(*bytes, |left, task| left.saturating_sub(task.payload.len()));
        found.extend(claimed);
        // Others are behind those that cannot be read, which are left out from now on.
        if is_all {
            break;
        }
    }
    Ok(found)
}

/// Claims rows, each of them scheduled and due while the lock is held; not those that cannot be read, of which it tells.
async fn claim(
    file: &File,
    writing: &mut Writing,
    ids: &[TaskId],
    claim: &Claim,
) -> Result<Vec<Task>, sqlx::Error> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let mut claimed = claim_all(file, writing, ids, claim).await?;
    if claimed.len() < ids.len() {
        sqlx::query(sql::UNDO).execute(&mut **writing).await?;
        let rows = read::by_ids(writing, ids.iter().copied()).await?;
        let sound: Vec<_> = file.unreadable.tasks(&rows).iter().map(|task| task.id).collect();
        claimed = claim_all(file, writing, &sound, claim).await?;
        ensure("a claim", claimed.len() as u64, sound.len())?;
    }
    note(writing, claim, &claimed).await?;
    Ok(claimed)
}

/// Notes of rows that they were claimed, where that is noted.
async fn note(writing: &mut Writing, claim: &Claim, claimed: &[Task]) -> Result<(), sqlx::Error> {
    let noted = claim.noted(claimed, writing.now);
    write::note(writing, &noted).await
}

/// Claims those of these rows that are scheduled and due, until that is undone; gives those that can be read.
async fn claim_all(
    file: &File,
    writing: &mut Writing,
    ids: &[TaskId],
    claim: &Claim,
) -> Result<Vec<Task>, sqlx::Error> {
    let now = writing.now;
    let query = sqlx::query(AssertSqlSafe(sql::undoable(sql::CLAIM)))
        .bind(codec::ids(ids.iter().copied())?)
        .bind(claim.owner.to_string())
        .bind(now.after(claim.lease).as_millis())
        .bind(now.as_millis());
    let rows = query.fetch_all(&mut **writing).await?;
    Ok(file.unreadable.tasks(&rows))
}
