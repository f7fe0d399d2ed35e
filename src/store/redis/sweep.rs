//! Takes rows whose `wake_at` has passed, and looks ahead.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use super::claim::{Chosen, Room, Taken, Taking};
use super::codec::Brief;
use super::database::Database;
use super::listen::Horizon;
use super::look::{Look, Place};
use super::parts::those_that_succeeded;
use super::shards::Shard;
use crate::store::{Ahead, Claim, Looked, Pending, Stamped, Sweep};
use crate::{Error, State, Task};

/// What a sweep looks at: scheduled and running rows.
const LIVE: &str = "01";
/// How many rows a shard is asked for beside its share: they may be spread unevenly.
const SPARE: usize = 16;

/// How many rows of each lane a shard is asked for, where so many are wanted in all.
pub(super) fn share(limit: usize, shards: u16) -> usize {
    limit.min((limit / usize::from(shards.max(1))).saturating_add(SPARE))
}

pub(super) async fn sweep(
    database: &Database,
    claim: &Claim,
    sweep: &Sweep,
) -> Result<Stamped<Looked>, Error> {
    let shards = database.shards().await?;
    let all = 0..shards;
    let within = sweep.ahead.map(|ahead| ahead.within);
    let loud = match database.listener.is_listening() {
        true => database.quiet.swept(all, within),
        false => Err(all.collect()),
    };
    let loud = match loud {
        Ok(now) => {
            let found = Looked::default();
            return Ok(Stamped { now, found });
        }
        Err(loud) => loud,
    };
    let limit = share(sweep.limit, shards);
    let looks = loud.into_iter().map(|shard| async move {
        let place = Place {
            database,
            shards,
            shard,
        };
        Ok((shard, look_at(place, limit, sweep.ahead).await?))
    });
    let looks = those_that_succeeded(join_all(looks).await)?;
    let mut ahead = Vec::new();
    let mut waiting = Looked::default();
    let mut now = None;
    for (_, look) in &looks {
        now = [now, Some(look.now)].into_iter().flatten().min();
    }
    let chosen = choose(looks, claim, sweep.limit, &mut waiting, &mut ahead);
    let taking = Taking {
        database,
        shards,
        claim,
        retake: Some(sweep.retake),
    };
    let Taken { mut found, .. } = taking.take_found(chosen).await?;
    // Who was faster at a row has it.
    found.stale = 0;
    for (kind, count) in waiting.waiting {
        *found.waiting.entry(kind).or_default() += count;
    }
    found.ahead = ahead;
    if let Some(ahead) = sweep.ahead {
        found.forget_claimed();
        found.ahead.sort_by_key(|row| (row.due_at, row.wake.id));
        found.ahead.truncate(ahead.limit);
    }
    let now = match now {
        Some(now) => now,
        None => database.now().await?,
    };
    Ok(Stamped { now, found })
}

/// Looks at a shard, and notes when it next needs a look.
async fn look_at(place: Place<'_>, limit: usize, ahead: Option<Ahead>) -> Result<Look, Error> {
    let quiet = &place.database.quiet;
    let since = quiet.looking(place.shard);
    let look = place.look(LIVE, limit, ahead).await?;
    let within = ahead.map(|ahead| ahead.within);
    let due = look
        .next_due
        .map(|due| due.saturating_sub(within.unwrap_or_default()));
    // What lies ahead is told by every sweep, until it is past.
    let ahead = (!look.ahead.is_empty()).then_some(Duration::ZERO);
    // What is not told and not written here is found all the same, only later.
    let longest = Horizon::of(place.shards).quiet;
    let pause = [look.next_wake, due, ahead, Some(longest)]
        .into_iter()
        .flatten()
        .min();
    quiet.looked(place.shard, since, pause.unwrap_or(longest), within);
    Ok(look)
}

/// Which of the rows that were found are to be taken, as far as there is room; and how many wait for want of it.
fn choose(
    looks: Vec<(Shard, Look)>,
    claim: &Claim,
    limit: usize,
    waiting: &mut Looked,
    ahead: &mut Vec<Pending>,
) -> BTreeMap<Shard, Chosen> {
    let mut rows = Vec::new();
    for (shard, look) in looks {
        ahead.extend(look.ahead);
        let overdue = look.overdue.into_iter().flat_map(|lane| lane.rows);
        rows.extend(overdue.map(|row| (shard, look.now, row)));
    }
    // Leases that have ended first, and of all others those that are overdue the longest.
    rows.sort_by_key(|(_, _, Brief { task, .. })| (task.state != State::Running, task.wake_at, task.id));
    let mut left = BTreeMap::new();
    let mut room = Room::of(claim);
    let mut chosen = BTreeMap::<Shard, Chosen>::new();
    for (shard, now, row) in rows {
        let Task { kind, state, .. } = &row.task;
        let left = left.entry((*state, kind.clone())).or_insert(limit);
        if *left == 0 {
            continue;
        }
        *left -= 1;
        let is_due = row.task.due_at <= now;
        let has_room = is_due && room.take(kind, row.size);
        if is_due && !has_room && *state != State::Running {
            *waiting.waiting.entry(kind.clone()).or_default() += 1;
        } else {
            chosen.entry(shard).or_default().add(&row, has_room);
        }
    }
    chosen
}
