//! Removes rows whose history is over, and mends leases that were given while a clock was ahead.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join_all;

use super::answer::Items;
use super::codec::Brief;
use super::database::Database;
use super::look::Place;
use super::parts::{ROWS, those_that_succeeded};
use super::pointers::{Pointer, unpoint};
use super::read::kinds_of;
use super::sweep::share;
use crate::redis::{Lua, lua};
use crate::{Error, Kind, State};

static PURGE: Lua = lua!("row.lua", "passes.lua", "order.lua", "keys.lua", "purge.lua");
static MEND: Lua = lua!("row.lua", "passes.lua", "mend.lua");

/// Done and cancelled rows.
const FINISHED: &str = "24";
/// How long a shard is not asked what to remove at the most: others may keep history for a shorter time.
const AT_LEAST: Duration = Duration::from_secs(600);
/// How many kinds and how many rows of each one call mends.
const MENDED_KINDS: usize = 20;
const MENDED: usize = 20;

pub(super) async fn purge(database: &Database, limit: usize) -> Result<u64, Error> {
    if limit == 0 {
        return Ok(0);
    }
    let shards = database.shards().await?;
    let places = database.quiet.to_purge(0..shards).into_iter().map(|shard| Place {
        database,
        shards,
        shard,
    });
    let looks = places.map(|place| async move { Ok((place, look_at(place, limit).await?)) });
    let looks = those_that_succeeded(join_all(looks).await)?;
    let mut left = BTreeMap::<Kind, usize>::new();
    let removing = looks.into_iter().map(|(place, rows)| {
        let rows = rows.into_iter().filter(|row| {
            let left = left.entry(row.task.kind.clone()).or_insert(limit);
            let has_left = *left > 0;
            *left -= usize::from(has_left);
            has_left
        });
        (place, rows.collect::<Vec<_>>())
    });
    let removing: Vec<_> = removing.collect();
    let removed = removing.into_iter().map(|(place, rows)| remove(place, rows));
    let removed = those_that_succeeded(join_all(removed).await)?;
    Ok(removed.into_iter().sum())
}

/// Mends leases in a shard, and looks what there is to remove.
async fn look_at(place: Place<'_>, limit: usize) -> Result<Vec<Brief>, Error> {
    let quiet = &place.database.quiet;
    let since = quiet.looking(place.shard);
    mend(place, limit).await?;
    let look = place.look(FINISHED, share(limit, place.shards), None).await?;
    let pause = look.next_wake.unwrap_or(AT_LEAST).min(AT_LEAST);
    quiet.looked_for_past(place.shard, since, pause);
    Ok(look.overdue.into_iter().flat_map(|lane| lane.rows).collect())
}

/// Removes rows of one shard; says how many were still to be removed.
async fn remove(place: Place<'_>, rows: Vec<Brief>) -> Result<u64, Error> {
    let Place {
        database,
        shards,
        shard,
    } = place;
    let mut count = 0;
    let mut pointers = Vec::new();
    for part in rows.chunks(ROWS) {
        let mut call = database.script(&PURGE, shard, shards, false);
        for row in part {
            call.arg(row.task.id.as_bytes());
        }
        let mut items = Items::of(database.write(call).await?.found)?;
        for row in part {
            let tried = items.number()?;
            count += u64::from(tried >= 0);
            if tried > 0 {
                let (id, tried) = (row.task.id, tried.cast_unsigned());
                pointers.push(Pointer { id, shard, tried });
            }
        }
    }
    unpoint(database, shards, pointers).await;
    Ok(count)
}

/// Mends leases of up to `limit` rows of each kind, as long as those that end last are to be mended.
async fn mend(place: Place<'_>, limit: usize) -> Result<(), Error> {
    let mut after: Option<Kind> = None;
    loop {
        let (kinds, has_more) = kinds_of(place, State::Running, after.as_ref(), MENDED_KINDS).await?;
        let mut left: Vec<_> = kinds.iter().map(|kind| (kind, limit)).collect();
        while !left.is_empty() {
            let mut call = place.database.script(&MEND, place.shard, place.shards, true);
            let most = left.iter().map(|(_, left)| *left).min().unwrap_or(0).min(MENDED);
            call.arg(most);
            for (kind, _) in &left {
                call.arg(kind.as_str());
            }
            let mut items = Items::of(place.database.write(call).await?.found)?;
            let mut further = Vec::new();
            for (kind, left) in left {
                let mended = items.count()?;
                let left = left.saturating_sub(mended);
                if mended > 0 && left > 0 {
                    further.push((kind, left));
                }
            }
            left = further;
        }
        after = kinds.last().cloned();
        if !has_more {
            return Ok(());
        }
    }
}
