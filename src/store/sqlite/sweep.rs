//! Takes rows whose `wake_at` has passed.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::SqliteConnection;

use super::{File, claim, codec, read, sql, write};
use crate::store::sql::{Before, Changed, Look, ensure};
use crate::store::{Claim, Looked, Noted, Stamped, Sweep, row};
use crate::{State, Task, TaskId, Timestamp};

/// What is to be done about overdue rows.
struct Plan<'a> {
    look: Look<'a>,
    expired: Vec<Changed>,
    /// What is noted of those.
    noted: Vec<(TaskId, Noted)>,
}

impl<'a> Plan<'a> {
    async fn make(
        connection: &mut SqliteConnection,
        file: &File,
        claim: &'a Claim,
        sweep: &Sweep,
        now: Timestamp,
    ) -> Result<Self, sqlx::Error> {
        let unreadable = &file.unreadable;
        let ended = read::overdue(connection, unreadable, State::Running, now, sweep.limit).await?;
        let overdue = read::overdue(connection, unreadable, State::Scheduled, now, sweep.limit).await?;
        let mut look = Look::new(claim, now);
        look.found.expired = ended.len();
        let mut expired = Vec::with_capacity(ended.len());
        let mut noted = Vec::new();
        for (mut row, bytes) in ended {
            let before = Before::of(&row);
            row::expire(&mut row, now);
            noted.extend(claim.noted_expired(&row, now));
            look.at(row::pending(&row), bytes);
            expired.push((before, row));
        }
        for (row, bytes) in &overdue {
            look.at(row::pending(row), *bytes);
        }
        if let Some(ahead) = sweep.ahead {
            look.found.ahead = read::look_ahead(connection, unreadable, now, ahead).await?;
        }
        Ok(Self { look, expired, noted })
    }

    fn is_idle(&self) -> bool {
        self.expired.is_empty() && self.look.due.is_empty() && self.look.found.early.is_empty()
    }
}

pub(super) async fn sweep(file: &File, claim: &Claim, sweep: &Sweep) -> Result<Stamped<Looked>, sqlx::Error> {
    // Nearly always there is nothing to do, and then nobody has to wait for the lock.
    let mut reading = file.readers.lend().await?;
    let plan = Plan::make(&mut reading, file, claim, sweep, file.clock.now()).await?;
    reading.give_back();
    if plan.is_idle() {
        return Ok(plan.look.stamped());
    }

    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let plan = Plan::make(&mut writing, file, claim, sweep, now).await?;
    let touched = write::write(&mut writing, &plan.expired).await?;
    ensure("an end of leases", touched, plan.expired.len())?;
    write::note(&mut writing, &plan.noted).await?;
    // For this worker alone for a while.
    let early: BTreeSet<_> = plan.look.found.early.iter().map(|row| row.wake.id).collect();
    write::wake_at(&mut writing, &early, now.after(sweep.retake)).await?;
    let mut looked = claim::take(plan.look, file, &mut writing).await?;
    writing.commit().await?;
    looked.found.forget_claimed();
    Ok(looked)
}

pub(super) async fn purge(file: &File, limit: usize) -> Result<u64, sqlx::Error> {
    let unreadable = &file.unreadable;
    let mut reading = file.readers.lend().await?;
    let now = file.clock.now();
    let mut past = read::past(&mut reading, State::Done, now, limit).await?;
    past.extend(read::past(&mut reading, State::Cancelled, now, limit).await?);
    let given_ahead = read::given_ahead(&mut reading, unreadable, now, limit).await?;
    reading.give_back();
    let mut taken = BTreeMap::new();
    past.retain(|(_, kind)| {
        let taken: &mut usize = taken.entry(kind.clone()).or_default();
        *taken += 1;
        *taken <= limit
    });
    if past.is_empty() && given_ahead.is_empty() {
        return Ok(0);
    }

    let mut writing = file.writer.write().await?;
    let now = writing.now;
    let query = sqlx::query(sql::PURGE)
        .bind(codec::raw_ids(past.iter().map(|(id, _)| id))?)
        .bind(now.as_millis());
    let removed = query.execute(&mut *writing).await?.rows_affected();
    let mend = |mut row: Task| {
        row::mend_lease(&mut row, now);
        (Before::of(&row), row)
    };
    let leases = read::given_ahead(&mut writing, unreadable, now, limit).await?;
    let leases: Vec<Changed> = leases.into_iter().map(mend).collect();
    let touched = write::write(&mut writing, &leases).await?;
    ensure("a mend of leases", touched, leases.len())?;
    writing.commit().await?;
    Ok(removed)
}
