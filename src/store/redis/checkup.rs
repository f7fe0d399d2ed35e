//! Whether all is well with the rows.

use std::time::Duration;

use serde::Serialize;

use super::RedisStore;
use super::answer::Items;
use super::codec::{STATES, digit};
use super::database::{Database, LOOK};
use super::shards::Shard;
use crate::redis::{Lua, lua};
use crate::{Error, Kind, State};

static CHECKUP: Lua = lua!("shard.lua", "checkup.lua");

/// From how many of its members the bytes of a key are estimated: looking at more would keep the server from others.
const SAMPLES: u32 = 5;
/// Of how many kinds one call counts the rows.
const KINDS: usize = 100;

/// What is kept for a [`RedisStore`]. For people; it asks a few commands of every shard and kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RedisRowsCheckup {
    /// How many shards there are.
    pub shards: u16,
    /// What is in each shard.
    pub contents: Vec<RowsCheckup>,
}

/// The rows of one shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RowsCheckup {
    /// What the keys of the shard begin with.
    pub shard: String,
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
    /// The memory that the keys of the shard take.
    pub bytes: u64,
}

impl RedisRowsCheckup {
    /// How many rows there are, of whatever state.
    pub fn rows(&self) -> u64 {
        let rows =
            |shard: &RowsCheckup| shard.scheduled + shard.running + shard.done + shard.dead + shard.cancelled;
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
        let Some(shards) = database.kept().await? else {
            return Ok(None);
        };
        let mut contents = Vec::new();
        for shard in 0..shards {
            contents.push(checkup_of(database, shard).await?);
        }
        Ok(Some(RedisRowsCheckup { shards, contents }))
    }
}

async fn checkup_of(database: &Database, shard: Shard) -> Result<RowsCheckup, Error> {
    let mut all = RowsCheckup {
        shard: database.tag(shard),
        ..RowsCheckup::default()
    };
    all.add(database, shard, None, &[]).await?;
    for state in STATES {
        let mut after = String::new();
        loop {
            let mut call = database.script(&LOOK, shard);
            call.arg("kinds").arg(digit(state)).arg(&after).arg(KINDS);
            let mut said = Items::of(database.read(call).await?.found)?;
            let mut kinds = Vec::new();
            while !said.is_empty() {
                kinds.push(Kind::from(said.text()?));
            }
            all.add(database, shard, Some(state), &kinds).await?;
            match kinds.last() {
                Some(last) if kinds.len() == KINDS => after = last.to_string(),
                _ => break,
            }
        }
    }
    Ok(all)
}

impl RowsCheckup {
    /// Adds what there is of some kinds in a state; or what is of no state.
    async fn add(
        &mut self,
        database: &Database,
        shard: Shard,
        state: Option<State>,
        kinds: &[Kind],
    ) -> Result<(), Error> {
        let mut call = database.script(&CHECKUP, shard);
        call.arg(SAMPLES)
            .arg(state.map_or_else(String::new, |state| digit(state).to_string()));
        for kind in kinds {
            call.arg(kind.as_str());
        }
        let mut items = Items::of(database.read(call).await?.found)?;
        let mut count = || Ok::<_, Error>(items.number()?.unsigned_abs());
        let [rows, due_for, wake_for, overdue] = [count()?, count()?, count()?, count()?];
        let biggest_key = items.text()?;
        let biggest_bytes = items.number()?.unsigned_abs();
        self.bytes += items.number()?.unsigned_abs();
        if biggest_bytes > self.biggest_bytes {
            (self.biggest_key, self.biggest_bytes) = (biggest_key, biggest_bytes);
        }
        match state {
            None => {}
            Some(State::Scheduled) => {
                self.scheduled += rows;
                self.due_for_ms = self.due_for_ms.max(due_for);
                self.overdue_for_ms = self.overdue_for_ms.max(wake_for);
            }
            Some(State::Running) => {
                self.running += rows;
                self.ended += overdue;
                self.ended_for_ms = self.ended_for_ms.max(wake_for);
            }
            Some(State::Done) => self.done += rows,
            Some(State::Dead) => self.dead += rows,
            Some(State::Cancelled) => self.cancelled += rows,
        }
        Ok(())
    }
}
