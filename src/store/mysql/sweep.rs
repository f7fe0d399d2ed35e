//! Takes rows whose `wake_at` has passed.

use std::collections::{BTreeMap, BTreeSet};

use super::lanes::{self, Lanes, What};
use super::{Server, claim, codec, read, write};
use crate::store::sql::{Look, ensure};
use crate::store::{Ahead, Claim, Looked, Pending, Stamped, Sweep, row};
use crate::{State, TaskId};

/// What is to be done about overdue rows.
struct Plan {
    lanes: Lanes,
    /// The rows that something is to be done about, ended leases first, then the longest overdue.
    chosen: Vec<(TaskId, u64)>,
    /// What was found already, so that nothing is to be done about it.
    found: Looked,
}

impl Plan {
    fn make(mut lanes: Lanes, claim: &Claim) -> Self {
        let ended = std::mem::take(&mut lanes.overdue[1]);
        let overdue = std::mem::take(&mut lanes.overdue[0]);
        let mut look = Look::new(claim, lanes.now);
        let mut found = Looked::default();
        let mut chosen: Vec<_> = ended.iter().map(|row| (row.wake.id, row.wake.version)).collect();
        ended.into_iter().for_each(|row| look.at(row));
        for row in overdue {
            let place = (row.wake.id, row.wake.version);
            let (kind, before) = (row.wake.kind.clone(), waiting(&look));
            look.at(row);
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
    let mut lent = server.connections.lend().await?;
    let what = What::Live(sweep.ahead);
    let lanes = lanes::look(&mut lent, server, what, sweep.limit, claim.room.keys()).await?;
    lent.give_back();
    let plan = Plan::make(lanes, claim);
    if plan.chosen.is_empty() {
        let (now, found) = (plan.lanes.now, plan.found);
        return Ok(Stamped { now, found });
    }
    let mut tries = 0;
    loop {
        match take(server, claim, sweep, &plan).await {
            Err(error) => server.connections.pause_after(error, &mut tries).await?,
            taken => return taken,
        }
    }
}

/// Does what was planned about those rows that nobody else has touched since, nor has locked.
async fn take(
    server: &Server,
    claim: &Claim,
    sweep: &Sweep,
    plan: &Plan,
) -> Result<Stamped<Looked>, sqlx::Error> {
    let mut writing = server.connections.begin().await?;
    let ids = plan.chosen.iter().map(|&(id, _)| id);
    let read = read::sound_by_ids(&mut writing, &server.sql.lean_unlocked, ids).await?;
    let now = read.now.map_or(plan.lanes.now, |read| read.max(plan.lanes.now));
    let mut rows: BTreeMap<_, _> = read.rows.into_iter().map(|row| (row.id, row)).collect();
    let mut look = Look::new(claim, now);
    look.found = plan.found.clone();
    let mut expired = Vec::new();
    for &(id, version) in &plan.chosen {
        // A renewal adds nothing to the version.
        let is_overdue =
            |row: &crate::Task| row.version == version && row.wake_at.is_some_and(|wake| wake <= now);
        let Some(mut row) = rows.remove(&id).filter(is_overdue) else {
            continue;
        };
        if row.state == State::Running {
            row::enter(&mut row, State::Scheduled, now);
            look.at(row::pending(&row));
            expired.push((version, row));
        } else if row.state == State::Scheduled {
            look.at(row::pending(&row));
        }
    }
    look.found.expired = expired.len();
    let touched = write::write(&mut writing, &server.sql, &expired).await?;
    ensure("an end of leases", touched, expired.len())?;
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

pub(super) async fn upcoming(server: &Server, ahead: Ahead) -> Result<Stamped<Vec<Pending>>, sqlx::Error> {
    let mut lent = server.connections.lend().await?;
    let lanes = lanes::look(&mut lent, server, What::Live(Some(ahead)), 0, []).await?;
    lent.give_back();
    Ok(Stamped {
        now: lanes.now,
        found: lanes.ahead,
    })
}

pub(super) async fn purge(server: &Server, limit: usize) -> Result<u64, sqlx::Error> {
    let mut lent = server.connections.lend().await?;
    let lanes = lanes::look(&mut lent, server, What::Past, limit, []).await?;
    lent.give_back();
    let mut taken = BTreeMap::new();
    let mut past = lanes.overdue.concat();
    past.retain(|row| {
        let taken: &mut usize = taken.entry(row.wake.kind.clone()).or_default();
        *taken += 1;
        *taken <= limit
    });
    if past.is_empty() {
        return Ok(0);
    }
    let mut tries = 0;
    loop {
        match remove(server, &past).await {
            Err(error) => server.connections.pause_after(error, &mut tries).await?,
            removed => return removed,
        }
    }
}

async fn remove(server: &Server, past: &[Pending]) -> Result<u64, sqlx::Error> {
    let mut writing = server.connections.begin().await?;
    let ids = codec::ids(past.iter().map(|row| row.wake.id))?;
    let query = read::query(&server.sql.past_unlocked).bind(ids);
    let found = query.fetch_all(&mut *writing).await?;
    let ids: Result<Vec<_>, _> = found.iter().map(|row| codec::id(row, 0)).collect();
    let query = read::query(&server.sql.remove).bind(codec::ids(ids?)?);
    let removed = query.execute(&mut *writing).await?.rows_affected();
    writing.commit().await?;
    Ok(removed)
}
