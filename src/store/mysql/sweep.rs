//! Takes rows whose `wake_at` has passed.

use std::collections::{BTreeMap, BTreeSet};

use super::connections::Writing;
use super::lanes::{self, Lanes, What};
use super::{Server, claim, codec, read, write};
use crate::store::sql::{Before, Look, ensure};
use crate::store::{Claim, Looked, Pending, Stamped, Sweep, row};
use crate::{State, TaskId, Timestamp};

/// What is to be done about overdue rows.
struct Plan {
    lanes: Lanes,
    /// The rows that something is to be done about, ended leases first, then the longest overdue.
    /// Each with its version, and the length of its payload.
    chosen: Vec<(TaskId, u64, usize)>,
    /// What was found already, so that nothing is to be done about it.
    found: Looked,
}

impl Plan {
    fn make(mut lanes: Lanes, claim: &Claim) -> Self {
        let ended = std::mem::take(&mut lanes.overdue[1]);
        let overdue = std::mem::take(&mut lanes.overdue[0]);
        let mut look = Look::new(claim, lanes.now);
        let mut found = Looked::default();
        let place = |(row, size): &(Pending, usize)| (row.wake.id, row.wake.version, *size);
        let mut chosen: Vec<_> = ended.iter().map(place).collect();
        ended.into_iter().for_each(|(row, size)| look.at(row, size));
        for (row, size) in overdue {
            let place = (row.wake.id, row.wake.version, size);
            let (kind, before) = (row.wake.kind.clone(), waiting(&look));
            look.at(row, size);
            if waiting(&look) == before {
                chosen.push(place);
            } else {
                *found.waiting.entry(kind).or_default() += 1;
            }
        }
        found.ahead = std::mem::take(&mut lanes.ahead);
        Self { lanes, chosen, found }
    }
}

fn waiting(look: &Look<'_>) -> usize {
    look.found.waiting.values().sum()
}

pub(super) async fn sweep(
    server: &Server,
    claim: &Claim,
    sweep: &Sweep,
) -> Result<Stamped<Looked>, sqlx::Error> {
    // Nearly always there is nothing to do, and then this is all.
    let mut lent = server.pools.workers.lend().await?;
    let what = What::Live(sweep.ahead);
    let lanes = lanes::look(&mut lent, server, what, sweep.limit, claim.room.keys()).await?;
    lent.give_back();
    let plan = Plan::make(lanes, claim);
    if plan.chosen.is_empty() {
        let (now, found) = (plan.lanes.now, plan.found);
        return Ok(Stamped { now, found });
    }
    server.pools.retried(|| take(server, claim, sweep, &plan)).await
}

/// Does what was planned about those rows that nobody else has touched since, nor has locked.
async fn take(
    server: &Server,
    claim: &Claim,
    sweep: &Sweep,
    plan: &Plan,
) -> Result<Stamped<Looked>, sqlx::Error> {
    let mut writing = Writing::begin(&server.pools.workers).await?;
    let ids = plan.chosen.iter().map(|&(id, ..)| id);
    let mut read = read::sound_by_ids(&mut writing, &server.sql.lean_unlocked, ids).await?;
    read::add_leases(&mut writing, &server.sql, &mut read.rows).await?;
    let now = read.now.map_or(plan.lanes.now, |read| read.max(plan.lanes.now));
    let mut rows: BTreeMap<_, _> = read.rows.into_iter().map(|row| (row.id, row)).collect();
    let mut look = Look::new(claim, now);
    look.found = plan.found.clone();
    let (mut expired, mut noted) = (Vec::new(), Vec::new());
    for &(id, version, size) in &plan.chosen {
        // A renewal adds nothing to the version.
        let is_overdue =
            |row: &crate::Task| row.version == version && row.wake_at.is_some_and(|wake| wake <= now);
        let Some(mut row) = rows.remove(&id).filter(is_overdue) else {
            continue;
        };
        if row.state == State::Running {
            let before = Before::of(&row);
            row::expire(&mut row, now);
            noted.extend(claim.noted_expired(&row, now));
            look.at(row::pending(&row), size);
            expired.push((before, row));
        } else if row.state == State::Scheduled {
            look.at(row::pending(&row), size);
        }
    }
    look.found.expired = expired.len();
    let touched = write::write(&mut writing, &server.sql, &expired).await?;
    ensure("an end of leases", touched, expired.len())?;
    write::note(&mut writing, &server.sql, &noted).await?;
    write::forget(&mut writing, &server.sql, expired.iter().map(|(_, row)| row.id)).await?;
    // For this worker alone for a while.
    let early: BTreeSet<_> = look.found.early.iter().map(|row| row.wake.id).collect();
    write::wake_at(&mut writing, &server.sql, &early, now.after(sweep.retake)).await?;
    if !look.due.is_empty() {
        let due = read::sound_by_ids(&mut writing, &server.sql.by_ids, look.due.iter().copied()).await?;
        look.found.claimed = claim::claim(&mut writing, server, due.rows, claim, now).await?;
    }
    writing.commit().await?;
    look.found.forget_claimed();
    Ok(look.stamped())
}

/// How many times its limit a purge removes of leases that were left behind: history has its own count.
const ROUNDS: usize = 20;

pub(super) async fn purge(server: &Server, limit: usize) -> Result<u64, sqlx::Error> {
    let mut lent = server.pools.workers.lend().await?;
    let lanes = lanes::look(&mut lent, server, What::Past, limit, []).await?;
    lent.give_back();
    server.pools.retried(|| mend(server, limit, lanes.now)).await?;
    let mut taken = BTreeMap::new();
    let mut past = lanes.overdue.concat();
    past.retain(|(row, _)| {
        let taken: &mut usize = taken.entry(row.wake.kind.clone()).or_default();
        *taken += 1;
        *taken <= limit
    });
    if past.is_empty() {
        return Ok(0);
    }
    server.pools.retried(|| remove(server, &past)).await
}

/// Mends leases that were given while the clock was ahead, and removes those of claims that are no more.
async fn mend(server: &Server, limit: usize, now: Timestamp) -> Result<(), sqlx::Error> {
    let sql = &server.sql;
    let (time, count) = (now.as_millis(), codec::limit(limit));
    let mut lent = server.pools.workers.lend().await?;
    // Which kinds there are.
    lanes::look(&mut lent, server, What::Live(None), 0, []).await?;
    for kind in server.live.get() {
        let query = read::query(&sql.last_leases).bind(kind).bind(count);
        let found = query.fetch_all(&mut *lent).await?;
        let ids: Result<Vec<_>, _> = found.iter().map(|row| codec::id(row, 0)).collect();
        let ids = ids?;
        if !ids.is_empty() {
            let query = read::query(&sql.mend).bind(codec::ids(ids)?);
            let query = query.bind(time).bind(time).bind(time);
            query.execute(&mut *lent).await?;
        }
    }
    let query = read::query(&sql.mend_leases).bind(time).bind(count);
    let query = query.bind(time).bind(time).bind(time);
    query.execute(&mut *lent).await?;
    for _ in 0..ROUNDS {
        let query = read::query(&sql.lost_leases).bind(time).bind(count);
        let found = query.fetch_all(&mut *lent).await?;
        let ids: Result<Vec<_>, _> = found.iter().map(|row| codec::id(row, 0)).collect();
        write::forget_until(&mut lent, sql, ids?, now).await?;
        if found.len() < limit {
            break;
        }
    }
    lent.give_back();
    Ok(())
}

async fn remove(server: &Server, past: &[(Pending, usize)]) -> Result<u64, sqlx::Error> {
    let mut writing = Writing::begin(&server.pools.workers).await?;
    let ids = codec::ids(past.iter().map(|(row, _)| row.wake.id))?;
    let query = read::query(&server.sql.past_unlocked).bind(ids);
    let found = query.fetch_all(&mut *writing).await?;
    let ids: Result<Vec<_>, _> = found.iter().map(|row| codec::id(row, 0)).collect();
    let query = read::query(&server.sql.remove).bind(codec::ids(ids?)?);
    let removed = query.execute(&mut *writing).await?.rows_affected();
    writing.commit().await?;
    Ok(removed)
}
