//! Removes rows whose history is over.
//!
//! Where there are several slots, the key of such a row may be in another one. Its entry is read first, then the row is
//! removed, and then the entry forgets it, if it is as it was read: whoever has taken the key or the id anew meanwhile has
//! given it another stamp. A process that dies in between leaves an entry that names no row, which goes when somebody
//! next has that key and is removed.

use std::collections::BTreeMap;

use super::answer;
use super::closed::is_closed;
use super::codec::{self, Brief};
use super::database::{Database, Told};
use super::keys::{self, Entry};
use super::moving;
use super::repeat::Tries;
use super::sweep::{self, FINISHED};
use super::together::{none_closed, those_that_succeeded, together};
use crate::redis::{Layouts, Lua, Slot, lua};
use crate::{Error, Key, Kind, TaskId, Wake};

static PURGE: Lua = lua!("row.lua", "gone.lua", "entry.lua", "purge.lua");
static FORGET: Lua = lua!("row.lua", "gone.lua", "entry.lua", "forget.lua");

/// How many rows go into one call: a bound on how long it keeps the server from others.
const ROWS: usize = 50;

pub(super) async fn purge(database: &Database, limit: usize) -> Result<u64, Error> {
    if limit == 0 {
        return Ok(0);
    }
    let mut removed = 0;
    let mut tries = Tries::default();
    loop {
        match purge_once(database, limit, &mut removed).await {
            Ok(()) => return Ok(removed),
            // What was removed is told: more is for the next one.
            Err(error) if is_closed(&error) && removed > 0 => return Ok(removed),
            Err(error) => tries.again(error)?,
        }
    }
}

async fn purge_once(database: &Database, limit: usize, removed: &mut u64) -> Result<(), Error> {
    let layouts = database.layouts().await?;
    if let Some(former) = layouts.former {
        let slots = database.quiet.to_purge(former.all());
        sweep::bring(database, layouts, FINISHED, limit, None, slots).await?;
    }
    let layout = layouts.current;
    let slots = database.quiet.to_purge(layout.all());
    let mut left = BTreeMap::<Kind, usize>::new();
    let mut asked: Vec<_> = slots.into_iter().map(|slot| (slot, Vec::new())).collect();
    while !asked.is_empty() {
        let looks = sweep::look(database, layout, Told::No, FINISHED, limit, None, asked).await;
        let mut again = BTreeMap::<Slot, Vec<(String, usize)>>::new();
        let mut by_slot = BTreeMap::<Slot, Vec<Brief>>::new();
        for look in those_that_succeeded(none_closed(looks)?)?.into_iter().flatten() {
            for overdue in look.lanes {
                for row in overdue.rows {
                    let left = left.entry(row.pending.wake.kind.clone()).or_insert(limit);
                    if *left > 0 {
                        *left -= 1;
                        by_slot.entry(look.slot).or_default().push(row);
                    }
                }
                if overdue.has_more {
                    again.entry(look.slot).or_default().push((overdue.lane, 0));
                }
            }
        }
        let is_all = by_slot.is_empty();
        let calls = by_slot
            .iter()
            .map(|(slot, rows)| remove(database, layouts, *slot, rows));
        let counts = those_that_succeeded(together(calls).await)?;
        *removed += counts.into_iter().flatten().sum::<u64>();
        for lanes in again.values_mut() {
            lanes.retain(|(lane, _)| {
                let kind = lane.split_once(':').map_or("", |(_, kind)| kind);
                left.get(&Kind::from(kind)).is_none_or(|left| *left > 0)
            });
        }
        again.retain(|_, lanes| !lanes.is_empty());
        asked = if is_all {
            Vec::new()
        } else {
            again.into_iter().collect()
        };
    }
    Ok(())
}

/// Removes rows of one slot; says how many were still to be removed.
async fn remove(database: &Database, layouts: Layouts, slot: Slot, rows: &[Brief]) -> Result<u64, Error> {
    let layout = layouts.current;
    let is_single = layout.slots == 1;
    let is_moving = layouts.former.is_some();
    let mut count = 0;
    for part in rows.chunks(ROWS) {
        let rows = part.iter().map(|row| &row.pending);
        let names = rows.filter_map(|row| Some((row.wake.kind.clone(), row.key.clone()?)));
        moving::bring(database, layouts, [], names).await?;
        let mut stamps = Vec::new();
        if !is_single {
            for row in part {
                stamps.push(match &row.pending.key {
                    Some(key) => {
                        let kind = &row.pending.wake.kind;
                        Some(Entry::read(database, layout, kind, key).await?.stamp)
                    }
                    None => None,
                });
            }
        }
        let mut call = database.script(&PURGE, slot, Told::No, layout);
        call.arg(u8::from(is_single)).arg(u8::from(is_moving));
        for row in part {
            call.arg(row.pending.wake.id.as_bytes());
        }
        let removed = answer::flags(database.write(call).await?.found)?;
        count += removed.iter().map(|&removed| u64::from(removed)).sum::<u64>();
        for ((row, stamp), removed) in part.iter().zip(stamps).zip(removed) {
            let (Some(stamp), Some(key), true) = (stamp, &row.pending.key, removed) else {
                continue;
            };
            let Wake { id, kind, .. } = &row.pending.wake;
            forgotten(database, layouts, kind, key, *id, &stamp).await?;
        }
    }
    Ok(count)
}

/// Lets a key forget a row that was removed, wherever its entry is by now.
async fn forgotten(
    database: &Database,
    mut layouts: Layouts,
    kind: &Kind,
    key: &Key,
    id: TaskId,
    stamp: &str,
) -> Result<(), Error> {
    let mut tries = Tries::default();
    while let Err(error) = forget(database, layouts, kind, key, id, stamp).await {
        tries.again(error)?;
        layouts = database.layouts().await?;
        let name = (kind.clone(), key.clone());
        moving::bring(database, layouts, [], [name]).await?;
    }
    Ok(())
}

/// Lets a key forget a row that was removed, if its entry still had this stamp before.
pub(super) async fn forget(
    database: &Database,
    layouts: Layouts,
    kind: &Kind,
    key: &Key,
    id: TaskId,
    stamp: &str,
) -> Result<(), Error> {
    let layout = layouts.current;
    let slot = keys::slot_of(layout, kind, key);
    let mut call = database.script(&FORGET, slot, Told::No, layout);
    call.arg(codec::name(kind, key))
        .arg(id.as_bytes())
        .arg(stamp)
        .arg(u8::from(layouts.former.is_some()));
    database.write(call).await?;
    Ok(())
}
