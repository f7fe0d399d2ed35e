//! The mover: begins another number of slots, carries over all there is, and ends the change.
//!
//! Everybody works meanwhile. Why that may be, and why a mover may die at any point, is said in `moving.rs`, which also has
//! the steps that are counted here.

use std::time::Duration;

use super::database::{Database, Told};
use super::keys;
use super::moving::{Fields, Moving, ROWS, slot_of_id};
use super::repeat::Tries;
use super::together::{all, together};
use crate::Error;
use crate::backend::Resharding;
use crate::redis::{Layout, Layouts, Lua, Slot, check_slots, lua};

static SEAL: Lua = lua!("row.lua", "seal.lua");
static DROP: Lua = lua!("row.lua", "drop.lua");
static BEGIN: Lua = lua!("begin.lua");
static END: Lua = lua!("end.lua");

/// How long it is said of a slot that it is closed, after it was emptied: longer than any call is on its way.
const CLOSED_FOR: Duration = Duration::from_secs(7 * 86_400);

/// Another number of slots: ends a change that was begun, and begins and ends the one that is wanted.
pub(super) async fn reshard(
    database: &Database,
    slots: u16,
    told: &mut (dyn FnMut(Resharding) + Send + '_),
) -> Result<(), Error> {
    check_slots(slots)?;
    let mut done = Resharding::default();
    let mut tries = Tries::default();
    loop {
        let layouts = database.layouts_now().await?;
        if layouts.former.is_some() {
            if let Err(error) = finish(database, layouts, &mut done, told).await {
                tries.again(error)?;
            }
        } else if layouts.current.slots == slots {
            return Ok(());
        } else {
            begin(database, layouts.current, slots).await?;
        }
    }
}

/// Step 1, if this epoch is still in use.
pub(super) async fn begin(database: &Database, known: Layout, slots: u16) -> Result<(), Error> {
    let args = [
        known.epoch.to_string(),
        slots.to_string(),
        database.listener.channel().to_owned(),
        database.message_of(known.epoch + 1),
    ];
    database.call_layout::<u64>(&BEGIN, &args).await.map(drop)
}

/// Carries over what there is, and ends the change that is under way.
pub(super) async fn finish(
    database: &Database,
    layouts: Layouts,
    done: &mut Resharding,
    told: &mut (dyn FnMut(Resharding) + Send + '_),
) -> Result<(), Error> {
    let Some(moving) = Moving::of(database, layouts) else {
        return Ok(());
    };
    for slot in moving.former.all() {
        let mut tell = |moved, left| {
            done.moved += moved;
            done.left = left;
            told(*done);
        };
        empty(&moving, slot, "rows", &mut tell).await?;
    }
    for slot in moving.former.all() {
        empty(&moving, slot, "keys", &mut |_, _| ()).await?;
    }
    end(&moving).await
}

/// Carries over whatever is in a hash of a former slot: again and again until it is empty, as a server that takes the
/// place of another may lose track of how far it was read.
async fn empty(
    moving: &Moving<'_>,
    slot: Slot,
    name: &'static str,
    tell: &mut (dyn FnMut(u64, u64) + Send + '_),
) -> Result<(), Error> {
    let database = moving.database;
    let mut cursor = 0_u64;
    loop {
        let words = [cursor.to_string(), "COUNT".to_owned(), ROWS.to_string()];
        let part = database.command("HSCAN", slot, name, &words).await?;
        let fields: Fields;
        (cursor, fields) = part;
        let count = u64::try_from(fields.len()).unwrap_or(0);
        carry(moving, slot, name == "rows", fields).await?;
        let left: u64 = database.command("HLEN", slot, name, &[] as &[&str]).await?;
        tell(count, left);
        if cursor == 0 && left == 0 {
            return Ok(());
        }
    }
}

/// Carries over what was found in one former slot. What is in the wrong one somebody else has put there: it is removed,
/// as nobody could find it.
async fn carry(moving: &Moving<'_>, slot: Slot, are_rows: bool, fields: Fields) -> Result<(), Error> {
    let slot_of = if are_rows { slot_of_id } else { keys::slot_of_name };
    let (fields, strays): (Vec<_>, Vec<_>) = fields
        .into_iter()
        .partition(|(field, _)| slot_of(moving.former, field) == slot);
    if are_rows {
        moving.carry_rows(fields).await?;
    } else {
        moving.carry_keys(fields).await?;
    }
    let strays = strays.into_iter().map(|(field, _)| field).collect();
    moving.remove(strays, |_| slot, are_rows).await
}

/// Steps 6 and 7, for which every former slot must be empty.
async fn end(moving: &Moving<'_>) -> Result<(), Error> {
    on_all(moving, &SEAL, moving.current, Told::No, &[]).await?;
    let kept = CLOSED_FOR.as_millis().to_string();
    let dropped = on_all(moving, &DROP, moving.former, Told::OfThePast, &[kept]).await?;
    if dropped.iter().all(|found| *found == redis::Value::Int(1)) {
        let args = [moving.current.epoch.to_string(), moving.former.slots.to_string()];
        moving.database.call_layout::<u64>(&END, &args).await?;
    }
    Ok(())
}

async fn on_all(
    moving: &Moving<'_>,
    script: &'static Lua,
    layout: Layout,
    told: Told,
    args: &[String],
) -> Result<Vec<redis::Value>, Error> {
    let calls = layout.all().map(|slot| {
        let mut call = moving.database.script(script, slot, told, layout);
        call.arg(args);
        async move { Ok(moving.database.write(call).await?.found) }
    });
    all(together(calls).await)
}
