//! Whether all is well with the rows.

use std::time::Duration;

use serde::Serialize;

use super::RedisStore;
use super::answer::Items;
use super::database::Told;
use crate::Error;
use crate::redis::{Layouts, Lua, lua};

static CHECKUP: Lua = lua!("row.lua", "checkup.lua");

/// From how many of its members the bytes of a key are estimated: looking at more would keep the server from others.
const SAMPLES: u32 = 5;

/// What is kept for a [`RedisStore`]. For people; it asks a few commands of every slot and kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RedisRowsCheckup {
    /// The epoch, which is one more with every change of the number of slots.
    pub epoch: u64,
    /// How many slots there are.
    pub slots: u16,
    /// How many slots of the epoch before still have rows, if a change was begun and has not ended.
    pub former_slots: Option<u16>,
    /// What is in each slot, those of the epoch before included.
    pub contents: Vec<RowsCheckup>,
}

/// The rows of one slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RowsCheckup {
    /// What the keys of the slot begin with.
    pub slot: String,
    /// How many rows are scheduled.
    pub scheduled: u64,
    /// How many are running.
    pub running: u64,
    /// How many are done.
    pub done: u64,
    /// How many are dead.
    pub dead: u64,
    /// How many are cancelled.
    pub cancelled: u64,
    /// How many rows wait for their key, or were left behind by a caller that died then.
    pub waiting_for_key: u64,
    /// For how many ms the first scheduled row is due; 0 if none is.
    pub due_for_ms: u64,
    /// For how many ms the first scheduled row is to be looked at, whether or not it is due; 0 if none is.
    pub overdue_for_ms: u64,
    /// Of how many running rows the lease has ended, and nobody has taken them over.
    pub ended: u64,
    /// For how many ms the first of these leases has ended; 0 if none has.
    pub ended_for_ms: u64,
    /// The biggest key; empty if the server may not be asked.
    pub biggest_key: String,
    /// The memory that it takes, in bytes, as the server estimates it.
    pub biggest_bytes: u64,
    /// The memory that all keys of the slot take.
    pub bytes: u64,
}

impl RedisRowsCheckup {
    /// How many rows there are, of whatever state.
    pub fn rows(&self) -> u64 {
        let rows =
            |slot: &RowsCheckup| slot.scheduled + slot.running + slot.done + slot.dead + slot.cancelled;
        self.contents.iter().map(rows).sum()
    }
}

impl RedisStore {
    /// For how long a row that is due, to be looked at, or whose lease has ended, may stay as it is while all is well and
    /// somebody works.
    pub const PATIENCE: Duration = Duration::from_secs(5);

    /// Looks at what is kept, and changes nothing; none where nothing was ever kept.
    pub async fn checkup(&self) -> Result<Option<RedisRowsCheckup>, Error> {
        let database = &self.database;
        let Some(layouts) = database.kept().await? else {
            return Ok(None);
        };
        let mut contents = Vec::new();
        for slot in Layouts::slots(layouts) {
            let mut call = database.script(&CHECKUP, slot, Told::No, layouts.current);
            call.arg(SAMPLES);
            let mut items = Items::of(database.read(call).await?.found)?;
            let mut count = || Ok::<_, Error>(items.number()?.unsigned_abs());
            contents.push(RowsCheckup {
                slot: database.tag(slot),
                scheduled: count()?,
                running: count()?,
                done: count()?,
                dead: count()?,
                cancelled: count()?,
                waiting_for_key: count()?,
                due_for_ms: count()?,
                overdue_for_ms: count()?,
                ended: count()?,
                ended_for_ms: count()?,
                biggest_key: items.text()?,
                biggest_bytes: items.number()?.unsigned_abs(),
                bytes: items.number()?.unsigned_abs(),
            });
        }
        Ok(Some(RedisRowsCheckup {
            epoch: layouts.current.epoch,
            slots: layouts.current.slots,
            former_slots: layouts.former.map(|former| former.slots),
            contents,
        }))
    }
}
