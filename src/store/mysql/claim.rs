//! Looks at rows, and claims those that are due.

use std::collections::BTreeMap;

use sqlx::MySqlConnection;

use super::connections::Writing;
use super::{Server, codec, read, write};
use crate::backend::Wake;
use crate::store::sql::{Look, ensure};
use crate::store::{Claim, Looked, Stamped, row};
use crate::{Kind, State, Task, Timestamp};

pub(super) async fn arrive(
    server: &Server,
    wakes: &[Wake],
    claim: &Claim,
) -> Result<Stamped<Looked>, sqlx::Error> {
    // Stale wake-ups and hops need no lock.
    let mut lent = server.pools.workers.lend().await?;
    let mut looked = read::look(&mut lent, &server.sql.look, wakes.iter().map(|wake| wake.id)).await?;
    let now = match looked.now {
        Some(now) => now,
        None => read::now(&mut lent, &server.sql).await?,
    };
    lent.give_back();
    let mut look = Look::new(claim, now);
    for wake in wakes {
        match looked.rows.remove(&wake.id) {
            Some((State::Scheduled, row, size)) if row.wake.version == wake.version => look.at(row, size),
            _ => look.found.stale += 1,
        }
    }
    if look.due.is_empty() {
        return Ok(look.stamped());
    }
    server.pools.retried(|| take(server, wakes, &look)).await
}

/// Claims what a look at wake-ups marked.
async fn take(server: &Server, wakes: &[Wake], look: &Look<'_>) -> Result<Stamped<Looked>, sqlx::Error> {
    let mut found = look.found.clone();
    let mut writing = Writing::begin(&server.pools.workers).await?;
    // What somebody else has locked is left to the sweep.
    let unlocked = &server.sql.by_ids_unlocked;
    let read = read::sound_by_ids(&mut writing, unlocked, look.due.iter().copied()).await?;
    let now = read.now.unwrap_or(look.now()).max(look.now());
    let mut rows = read.rows;
    // Since the look, somebody else may have had them, or the clock may have been set back.
    let versions: BTreeMap<_, _> = wakes.iter().map(|wake| (wake.id, wake.version)).collect();
    let count = rows.len();
    rows.retain(|row| row.state == State::Scheduled && versions.get(&row.id) == Some(&row.version));
    found.stale += count - rows.len();
    let (due, early): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.due_at <= now);
    found.early.extend(early.iter().map(row::pending));
    found.claimed = self::claim(&mut writing, server, due, look.claim, now).await?;
    writing.commit().await?;
    Ok(Stamped { now, found })
}

pub(super) async fn ready(server: &Server, claim: &Claim) -> Result<Stamped<Vec<Task>>, sqlx::Error> {
    let mut lent = server.pools.workers.lend().await?;
    let now = read::now(&mut lent, &server.sql).await?;
    let mut due = Vec::new();
    for (kind, &room) in claim.room.iter().filter(|(_, room)| **room > 0) {
        let of_kind = read::due(&mut lent, &server.sql, kind, now, room).await?;
        due.extend(
            of_kind
                .into_iter()
                .map(|(due_at, id, size)| (due_at, id, kind, size)),
        );
    }
    lent.give_back();
    // The longest due first, as far as there is room for their payloads.
    due.sort_unstable();
    let mut bytes = claim.bytes;
    let mut chosen = BTreeMap::new();
    for (.., kind, size) in due {
        if bytes == 0 {
            break;
        }
        bytes = bytes.saturating_sub(size);
        *chosen.entry(kind).or_default() += 1;
    }
    if chosen.is_empty() {
        let found = Vec::new();
        return Ok(Stamped { now, found });
    }
    server
        .pools
        .retried(|| take_ready(server, claim, &chosen, now))
        .await
}

/// Claims rows of kinds of which there are due ones, so many of each.
async fn take_ready(
    server: &Server,
    claim: &Claim,
    kinds: &BTreeMap<&Kind, usize>,
    due_at: Timestamp,
) -> Result<Stamped<Vec<Task>>, sqlx::Error> {
    let mut writing = Writing::begin(&server.pools.workers).await?;
    let (mut rows, mut now) = (Vec::new(), due_at);
    for (kind, count) in kinds {
        let query = read::query(&server.sql.due_unlocked)
            .bind(kind.as_str().as_bytes().to_vec())
            .bind(due_at.as_millis())
            .bind(codec::limit(*count));
        let read = read::sound(query.fetch_all(&mut *writing).await?)?;
        rows.extend(read.rows);
        now = read.now.map_or(now, |read| read.max(now));
    }
    // Others may have taken those that were looked at.
    rows.sort_by_key(|task| (task.due_at, task.id));
    let mut bytes = claim.bytes;
    rows.retain(|task| {
        let fits = bytes > 0;
        bytes = bytes.saturating_sub(task.payload.len());
        fits
    });
    let found = self::claim(&mut writing, server, rows, claim, now).await?;
    writing.commit().await?;
    Ok(Stamped { now, found })
}

/// Claims rows that are locked, each of them scheduled and due.
pub(super) async fn claim(
    connection: &mut MySqlConnection,
    server: &Server,
    mut rows: Vec<Task>,
    claim: &Claim,
    now: Timestamp,
) -> Result<Vec<Task>, sqlx::Error> {
    if rows.is_empty() {
        return Ok(rows);
    }
    let ids: Vec<_> = rows.iter().map(|row| row.id).collect();
    let touched = write::claim(connection, &server.sql, &ids, claim, now).await?;
    ensure("a claim", touched, rows.len())?;
    for row in &mut rows {
        row::claim(row, claim, now);
    }
    write::note(connection, &server.sql, &claim.noted(&rows, now)).await?;
    Ok(rows)
}
