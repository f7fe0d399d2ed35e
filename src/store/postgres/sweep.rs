//! Takes rows whose `wake_at` has passed.

use super::connections::Database;
use super::{claim, codec};
use crate::store::{Claim, Looked, Stamped, Sweep};

pub(super) async fn sweep(
    database: &Database,
    claim: &Claim,
    sweep: &Sweep,
) -> Result<Stamped<Looked>, sqlx::Error> {
    let run = || async {
        let (kinds, room) = claim::room(claim);
        let (within, limit) = match sweep.ahead {
            Some(ahead) => (codec::span(ahead.within), codec::limit(ahead.limit)),
            None => (0, 0),
        };
        let query = sqlx::query(database.statements.sweep.clone())
            .bind(kinds)
            .bind(room)
            .bind(codec::text(&claim.owner))
            .bind(codec::span(claim.lease))
            .bind(codec::limit(sweep.limit))
            .bind(codec::span(sweep.retake))
            .bind(within)
            .bind(limit);
        query.fetch_all(&database.pool).await
    };
    let mut looked = claim::looked(&database.retried(run).await?)?;
    let found = &mut looked.found;
    // The look ahead sees the rows as they were before the claim: one that is due this very moment is in both.
    found.forget_claimed();
    found.ahead.sort_by_key(|row| (row.due_at, row.wake.id));
    Ok(looked)
}

pub(super) async fn purge(database: &Database, limit: usize) -> Result<u64, sqlx::Error> {
    let purge = || async {
        let query = sqlx::query(database.statements.purge.clone()).bind(codec::limit(limit));
        Ok(query.execute(&database.pool).await?.rows_affected())
    };
    database.retried(purge).await
}
