//! Takes rows whose `wake_at` has passed.

use std::collections::BTreeMap;

use sqlx::Row;
use uuid::Uuid;

use super::claim::{self, Sight};
use super::codec;
use super::connections::{Database, Using, Writing, fetch};
use crate::TaskId;
use crate::store::{Claim, Looked, Stamped, Sweep};

/// How many times its limit a purge removes of leases that were left behind: history has its own count.
const ROUNDS: usize = 20;

pub(super) async fn sweep(
    database: &Database,
    claim: &Claim,
    sweep: &Sweep,
) -> Result<Stamped<Looked>, sqlx::Error> {
    let Sight { mut looked, ended } = look(database, claim, sweep).await?;
    if !ended.is_empty() {
        let expired = database
            .retried(|| expire(database, &ended, claim.expired()))
            .await?;
        if expired > 0 {
            // They are looked at at once.
            let rest = left(claim, &looked.found);
            let again = look(database, &rest, sweep).await?.looked;
            let before = std::mem::take(&mut looked.found);
            looked = again;
            looked.found.claimed.extend(before.claimed);
            looked.found.early.extend(before.early);
        }
        looked.found.expired = expired;
    }
    let found = &mut looked.found;
    // The look ahead sees the rows as they were before the claim: one that is due this very moment is in both.
    found.forget_claimed();
    found.ahead.sort_by_key(|row| (row.due_at, row.wake.id));
    Ok(looked)
}

async fn look(database: &Database, claim: &Claim, sweep: &Sweep) -> Result<Sight, sqlx::Error> {
    let run = || async {
        let (kinds, room) = claim::room(claim);
        let (within, limit) = match sweep.ahead {
            Some(ahead) => (codec::span(ahead.within), codec::limit(ahead.limit)),
            None => (0, 0),
        };
        let query = database
            .statements
            .query(&database.statements.sweep)
            .bind(kinds)
            .bind(room)
            .bind(codec::text(&claim.owner))
            .bind(codec::span(claim.lease))
            .bind(codec::limit(sweep.limit))
            .bind(codec::span(sweep.retake))
            .bind(within)
            .bind(limit)
            .bind(codec::limit(claim.bytes))
            .bind(claim.claimed());
        fetch(&database.workers, query).await
    };
    claim::sight(&database.retried(run).await?)
}

/// Ends leases that have ended, and that nobody renews or settles at this moment; says how many.
///
/// A renewal leaves the row as it is, so a statement that looks and locks in one may have looked before the renewal and
/// locked after it. So there are two: what the second one sees is as it was when the row was locked, or later.
pub(super) async fn expire(
    database: &Database,
    ended: &[(TaskId, i64)],
    noted: Option<&'static str>,
) -> Result<usize, sqlx::Error> {
    let mut writing = Writing::begin(&database.workers).await?;
    let versions: Vec<_> = ended.iter().map(|&(_, version)| version).collect();
    let statements = &database.statements;
    let locked = statements
        .query(&statements.lock)
        .bind(codec::uuids(ended.iter().map(|&(id, _)| id)))
        .bind(versions)
        .fetch_all(&mut *writing)
        .await?;
    let ids: Result<Vec<Uuid>, _> = locked.iter().map(|row| row.try_get(0)).collect();
    let expired: i64 = sqlx::query_scalar(statements.expire.clone())
        .persistent(statements.prepared)
        .bind(ids?)
        .bind(noted)
        .fetch_one(&mut *writing)
        .await?;
    writing.commit().await?;
    Ok(usize::try_from(expired).unwrap_or(0))
}

/// What a claim has room for after it has been claimed for.
fn left(claim: &Claim, found: &Looked) -> Claim {
    let mut taken: BTreeMap<_, usize> = BTreeMap::new();
    let mut bytes = 0_usize;
    for task in &found.claimed {
        *taken.entry(&task.kind).or_default() += 1;
        bytes += task.payload.len();
    }
    let room = claim.room.iter().map(|(kind, room)| {
        let taken = taken.get(kind).copied().unwrap_or_default();
        (kind.clone(), room.saturating_sub(taken))
    });
    Claim {
        room: room.collect(),
        bytes: claim.bytes.saturating_sub(bytes),
        ..claim.clone()
    }
}

pub(super) async fn purge(database: &Database, limit: usize) -> Result<u64, sqlx::Error> {
    let statements = &database.statements;
    for mend in [&statements.mend, &statements.mend_leases] {
        execute(database, mend, limit).await?;
    }
    for _ in 0..ROUNDS {
        if execute(database, &statements.purge_leases, limit).await? < codec::limit(limit).cast_unsigned() {
            break;
        }
    }
    execute(database, &statements.purge, limit).await
}

async fn execute(database: &Database, statement: &sqlx::SqlStr, limit: usize) -> Result<u64, sqlx::Error> {
    let execute = || async {
        let query = database.statements.query(statement).bind(codec::limit(limit));
        let mut using = Using::lend(&database.workers).await?;
        let touched = query.execute(&mut *using).await?.rows_affected();
        using.give_back().await?;
        Ok(touched)
    };
    database.retried(execute).await
}
