//! Claims rows that are due.

use std::sync::Arc;

use futures_util::future::join_all;

use super::codec::{self, lane};
use super::database::Database;
use super::postpone::unreadable;
use super::range::{ranges, those_that_succeeded};
use super::read::{Extra, Lookup, look_up};
use super::shards::{Shard, grouped, home_of, of_id};
use crate::redis::{Lua, lua};
use crate::store::rules::Capacity;
use crate::store::table::{By, Columns, Found, Range, Which};
use crate::store::{Claim, Stamped};
use crate::task::timestamp::millis;
use crate::{Error, Kind, State, Task, TaskId, Timestamp};

static CLAIM: Lua = lua!("shard.lua", "index.lua", "claim.lua");

/// How many rows one call claims: a bound on how long it keeps the server from others.
const ROWS: usize = 64;
/// How often due rows that others have taken meanwhile are looked for anew.
const ROUNDS: usize = 10;

/// What the script says: of each row that it has claimed id, head and payload; of each that is not as it must be kind, id and
/// head; and how many of those named it has looked at, or whether there may be more that are due.
type Said = (
    Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>,
    Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>,
    usize,
);

/// A claim on the way.
pub(super) struct Claiming<'a> {
    database: &'a Arc<Database>,
    /// What is still to be had.
    left: Claim,
    now: Option<Timestamp>,
    found: Found,
}

impl<'a> Claiming<'a> {
    pub(super) fn new(database: &'a Arc<Database>, claim: &Claim) -> Self {
        let mut left = claim.clone();
        left.room.retain(|_, room| *room > 0);
        Self {
            database,
            left,
            now: None,
            found: Found::default(),
        }
    }

    /// Claims what there is room for.
    pub(super) async fn claim(mut self, which: Which<'_>) -> Result<Stamped<Found>, Error> {
        let shards = self.database.shards().await?;
        let claimed = match which {
            Which::Due if shards == 1 => self.due().await,
            Which::Due => self.due_among(shards).await,
            Which::These(rows) => self.these(shards, rows).await,
        };
        match claimed {
            // What has been claimed must not be lost by what comes after it.
            Err(error) if !self.found.rows.is_empty() => {
                tracing::warn!(%error, "some due tasks are on a Redis server that does not answer; they are late until it does");
            }
            claimed => claimed?,
        }
        let now = match self.now {
            Some(now) => now,
            None => self.database.now().await?,
        };
        let found = self.found;
        Ok(Stamped { now, found })
    }

    /// The longest due ones, where there is one shard.
    async fn due(&mut self) -> Result<(), Error> {
        while self.has_room() {
            let more = self.call(0, Some(ROWS), &[]).await?;
            // Those that cannot be read are in the way until they are set aside.
            if more == 0 || !self.found.unreadable.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// The longest due ones among all shards: what is due is looked at first.
    async fn due_among(&mut self, shards: u16) -> Result<(), Error> {
        for _ in 0..ROUNDS {
            let due: Vec<_> = Range::due(&self.left).collect();
            if due.is_empty() {
                break;
            }
            let Stamped { now, found } = ranges(self.database, &due, Columns::Lean, true).await?;
            self.saw(now);
            let mut rows = Vec::new();
            for found in found {
                rows.extend(found.rows);
                self.found.unreadable.extend(found.unreadable);
            }
            rows.sort_by_key(|(task, _)| (task.due_at, task.id));
            // What others were faster at leaves room for what comes after it.
            if self.take(shards, rows).await? || !self.found.unreadable.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// Those that are named: at once where they are all in one shard by their ids; the others once it is seen where they are,
    /// and which of them there is room for.
    async fn these(&mut self, shards: u16, named: &[(TaskId, u64)]) -> Result<(), Error> {
        let mut left = named.to_vec();
        let home = named.first().map_or(0, |(id, _)| of_id(shards, *id));
        if named.iter().all(|(id, _)| of_id(shards, *id) == home) {
            self.these_in(home, named).await?;
            left.retain(|(id, _)| shards > 1 && !self.found.rows.iter().any(|row| row.id == *id));
        }
        if left.is_empty() || !self.has_room() {
            return Ok(());
        }
        let asked: Vec<_> = left.iter().map(|(id, _)| Lookup::Id(*id)).collect();
        let seen = look_up(self.database, &asked, Extra::Nothing).await?;
        self.saw(seen.now);
        let rows = seen
            .found
            .into_iter()
            .zip(left)
            .filter_map(|(seen, (_, version))| {
                // What is not known now is found by a sweep.
                let raw = seen.ok()??;
                let (task, size) = codec::lean(raw.id, &raw.head).ok()?;
                let is_meant = task.state == State::Scheduled && task.version == version;
                (is_meant && self.now.is_some_and(|now| task.due_at <= now)).then_some((task, size))
            });
        let rows = rows.collect();
        self.take(shards, rows).await.map(drop)
    }

    /// Claims those rows that there is room for, the first first; says whether it has got all of these.
    async fn take(&mut self, shards: u16, rows: Vec<(Task, usize)>) -> Result<bool, Error> {
        let mut capacity = Capacity::new(&self.left);
        let mut chosen = Vec::new();
        for (task, size) in rows {
            if capacity.has_room(&task.kind) {
                capacity.take_room_of(&task.kind, size);
                chosen.push((home_of(shards, &task), (task.id, task.version)));
            }
        }
        let meant = chosen.len();
        let parts = grouped(chosen).into_iter().map(|(shard, rows)| {
            let mut part = Claiming::new(self.database, &self.left);
            part.left.bytes = usize::MAX;
            async move { part.these_in(shard, &rows).await.map(|()| part) }
        });
        let parts = those_that_succeeded(join_all(parts).await)?;
        // The leases begin when the rows are claimed, and not when they were seen.
        if self.found.rows.is_empty() && !parts.is_empty() {
            self.now = None;
        }
        let before = self.found.rows.len();
        for part in parts {
            part.now.into_iter().for_each(|now| self.saw(now));
            part.found.rows.into_iter().for_each(|row| self.claimed(row));
            self.found.unreadable.extend(part.found.unreadable);
        }
        Ok(self.found.rows.len() - before == meant)
    }

    /// Claims named rows in one shard.
    async fn these_in(&mut self, shard: Shard, mut named: &[(TaskId, u64)]) -> Result<(), Error> {
        while !named.is_empty() && self.has_room() {
            let looked = self.call(shard, None, &named[..named.len().min(ROWS)]).await?;
            named = &named[looked.clamp(1, named.len())..];
        }
        Ok(())
    }

    fn has_room(&self) -> bool {
        !self.left.room.is_empty() && self.left.bytes > 0
    }

    /// Calls the script, and takes what it has claimed; gives how many of those named it has looked at, or whether there may be
    /// more that are due.
    async fn call(
        &mut self,
        shard: Shard,
        most: Option<usize>,
        named: &[(TaskId, u64)],
    ) -> Result<usize, Error> {
        let mut call = self.database.script(&CLAIM, shard);
        call.arg(codec::owner(&self.left.owner))
            .arg(millis(self.left.lease))
            .arg(self.left.claimed().unwrap_or_default())
            .arg(self.left.bytes)
            .arg(most.map_or_else(String::new, |most| most.to_string()))
            .arg(self.left.room.len());
        for (kind, room) in &self.left.room {
            call.arg(kind.as_str()).arg(*room);
        }
        for (id, version) in named {
            call.arg(id.as_bytes()).arg(version.to_le_bytes().as_slice());
        }
        // Rows that were claimed by a call which then fails would be left to their leases, until they are given up as stalled.
        let said = self.database.write_unconfirmed::<Said>(shard, call).await?;
        let Stamped { now, found } = said;
        self.saw(now);
        let (claimed, wrong, looked) = found;
        for (id, head, payload) in claimed {
            let Some(id) = id.try_into().ok().map(TaskId::from_bytes) else {
                continue;
            };
            match codec::task(id, &head, &payload) {
                Ok(task) => self.claimed(task),
                Err(error) => tracing::error!(%id, %error, "a task was claimed whose row cannot be read"),
            }
        }
        for (kind, id, head) in wrong {
            let known = id.as_slice().try_into().ok().map(TaskId::from_bytes);
            let why = known.and_then(|known| codec::lean(known, &head).err());
            let lane = lane(
                State::Scheduled,
                &Kind::from(String::from_utf8_lossy(&kind).into_owned()),
            );
            let wrong = unreadable(shard, By::Due, &lane, &id, &head, why);
            self.found.unreadable.push(wrong);
        }
        Ok(looked)
    }

    fn saw(&mut self, now: Timestamp) {
        self.now = Some(self.now.map_or(now, |before| before.min(now)));
    }

    fn claimed(&mut self, row: Task) {
        if let Some(room) = self.left.room.get_mut(&row.kind) {
            *room = room.saturating_sub(1);
            if *room == 0 {
                self.left.room.remove(&row.kind);
            }
        }
        self.left.bytes = self.left.bytes.saturating_sub(row.payload.len());
        self.found.rows.push(row);
    }
}
