//! Claims rows that are due.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::answer::{self, Answer, Items};
use super::codec;
use super::database::{Database, Request};
use super::idle::Sort;
use super::ranges::{Placed, ranges, those_that_succeeded};
use super::read::{Asked, Extra, look_up};
use super::shards::{Shard, of_id};
use super::strays::{Member, Misplaced, Spoilt, member, put_right};
use crate::redis::{Lua, lua};
use crate::store::table::{By, Columns, Found, Range, Which};
use crate::store::taking::Taking;
use crate::store::{Claim, Stamped};
use crate::task::timestamp::millis;
use crate::{Error, State, Task, TaskId, Timestamp};

static CLAIM: Lua = lua!("shard.lua", "lanes.lua", "claim.lua");

/// How many rows one call claims: a bound on how long it keeps the server from others.
const ROWS: usize = 64;
/// How often due rows that others have taken meanwhile are looked for anew.
const ROUNDS: usize = 10;

/// A claim on the way.
pub(super) struct Claiming<'a> {
    database: &'a Database,
    claim: &'a Claim,
    /// What is still to be had.
    left: Claim,
    now: Option<Timestamp>,
    found: Found,
}

impl<'a> Claiming<'a> {
    pub(super) fn new(database: &'a Database, claim: &'a Claim) -> Self {
        let mut left = claim.clone();
        left.room.retain(|_, room| *room > 0);
        Self {
            database,
            claim,
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
            Which::Due => self.due_among().await,
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
        Ok(Stamped {
            now,
            found: self.found,
        })
    }

    /// The longest due ones, where there is one shard.
    async fn due(&mut self) -> Result<(), Error> {
        while self.has_room() {
            let mut call = self.call(0, self.left.bytes);
            call.arg(ROWS);
            self.rooms(&mut call);
            let said = self.said(0, self.database.write(call).await?).await?;
            // Those that cannot be read are in the way until they are set aside.
            if said.looked == 0 || !self.found.unreadable.is_empty() {
                break;
            }
        }
        Ok(())
    }

    /// The longest due ones among all shards: what is due is looked at first.
    async fn due_among(&mut self) -> Result<(), Error> {
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
                let spoilt = found.spoilt.into_iter().map(Spoilt::unreadable);
                self.found.unreadable.extend(spoilt);
            }
            rows.sort_by_key(|row| (row.task.due_at, row.task.id));
            let chosen = self.chosen(rows);
            let (meant, before) = (
                chosen.values().map(Vec::len).sum::<usize>(),
                self.found.rows.len(),
            );
            self.take(chosen).await?;
            // What others were faster at leaves room for what comes after it.
            if !self.found.unreadable.is_empty() || self.found.rows.len() - before == meant {
                break;
            }
        }
        Ok(())
    }

    /// Those that are named: at once where they are all in one shard, else once it is seen which of them there is room for.
    async fn these(&mut self, shards: u16, named: &[(TaskId, u64)]) -> Result<(), Error> {
        let mut named = named.to_vec();
        let home = named.first().map_or(0, |(id, _)| of_id(shards, *id));
        if named.iter().all(|(id, _)| of_id(shards, *id) == home) {
            let absent = self.these_in(home, &named).await?;
            named.retain(|(id, _)| shards > 1 && absent.contains(id));
        }
        if named.is_empty() {
            return Ok(());
        }
        let asked: Vec<_> = named.iter().map(|(id, _)| Asked::Id(*id)).collect();
        let seen = look_up(self.database, &asked, Extra::Nothing).await?;
        seen.now.into_iter().for_each(|now| self.saw(now));
        let mut rows = Vec::new();
        let mut failure = None;
        for (seen, (_, version)) in seen.rows.into_iter().zip(named) {
            match seen {
                Ok(None) => {}
                Ok(Some(raw)) => {
                    let Ok((task, size)) = codec::lean(raw.id, &raw.head) else {
                        continue;
                    };
                    let is_meant = task.state == State::Scheduled && task.version == version;
                    let is_due = self.now.is_some_and(|now| task.due_at <= now);
                    rows.extend((is_meant && is_due).then_some(Placed {
                        shard: raw.shard,
                        task,
                        size,
                    }));
                }
                Err(error) => failure = Some(error),
            }
        }
        if let (Some(error), true) = (failure, rows.is_empty()) {
            return Err(error);
        }
        let chosen = self.chosen(rows);
        self.take(chosen).await
    }

    /// Of rows those that there is room for, by shard.
    fn chosen(&self, rows: Vec<Placed>) -> BTreeMap<Shard, Vec<(TaskId, u64)>> {
        let mut taking = Taking::new(&self.left);
        let mut chosen = BTreeMap::<Shard, Vec<_>>::new();
        for Placed { shard, task, size } in rows {
            if taking.has_room(&task.kind) {
                taking.take_room_of(&task.kind, size);
                chosen.entry(shard).or_default().push((task.id, task.version));
            }
        }
        chosen
    }

    /// Claims rows that there is room for.
    async fn take(&mut self, chosen: BTreeMap<Shard, Vec<(TaskId, u64)>>) -> Result<(), Error> {
        let own = |shard: Shard, rows: Vec<_>| {
            let mut part = Claiming::new(self.database, self.claim);
            part.left = self.left.clone();
            part.left.bytes = usize::MAX;
            async move { part.these_in(shard, &rows).await.map(|_| part) }
        };
        let parts = join_all(chosen.into_iter().map(|(shard, rows)| own(shard, rows))).await;
        // The leases begin when the rows are claimed, and not when they were seen.
        if self.found.rows.is_empty() && !parts.is_empty() {
            self.now = None;
        }
        for part in those_that_succeeded(parts)? {
            part.now.into_iter().for_each(|now| self.saw(now));
            for row in part.found.rows {
                self.claimed(row);
            }
            self.found.unreadable.extend(part.found.unreadable);
        }
        Ok(())
    }

    /// Claims named rows in one shard; gives those that are not there.
    async fn these_in(&mut self, shard: Shard, named: &[(TaskId, u64)]) -> Result<Vec<TaskId>, Error> {
        let (mut rest, mut absent) = (named, Vec::new());
        while !rest.is_empty() && self.has_room() {
            let mut call = self.call(shard, self.left.bytes);
            call.arg("");
            self.rooms(&mut call);
            for (id, version) in &rest[..rest.len().min(ROWS)] {
                call.arg(id.as_bytes()).arg(codec::version(*version).as_slice());
            }
            let said = self.said(shard, self.database.write(call).await?).await?;
            absent.extend(said.absent);
            rest = &rest[said.looked.clamp(1, rest.len())..];
        }
        Ok(absent)
    }

    fn has_room(&self) -> bool {
        !self.left.room.is_empty() && self.left.bytes > 0
    }

    fn call(&self, shard: Shard, bytes: usize) -> Request {
        let mut call = self.database.script(&CLAIM, shard);
        call.arg(codec::owner(&self.claim.owner))
            .arg(millis(self.claim.lease))
            .arg(self.claim.claimed().unwrap_or_default())
            .arg(bytes);
        call
    }

    fn rooms(&self, call: &mut Request) {
        call.arg(self.left.room.len());
        for (kind, room) in &self.left.room {
            call.arg(kind.as_str()).arg(*room);
        }
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

    /// Takes what a script has said.
    async fn said(&mut self, shard: Shard, answer: Answer) -> Result<Said, Error> {
        let Answer { now, found } = answer;
        self.saw(now);
        let mut items = Items::of(found)?;
        let (mut claimed, mut wrong, mut named) = (items.items()?, items.items()?, items.items()?);
        let looked = items.count()?;
        self.database
            .idle
            .written(shard, Sort::Leased, now.after(self.claim.lease));
        while !claimed.is_empty() {
            let (id, head, payload) = (claimed.bytes()?, claimed.bytes()?, claimed.bytes()?);
            let Some(id) = answer::id(&id) else { continue };
            match codec::task(id, &head, &payload) {
                Ok(task) => self.claimed(task),
                Err(garbled) => tracing::error!(%id, %garbled, "a task was claimed whose row cannot be read"),
            }
        }
        let mut misplaced = Vec::<Misplaced>::new();
        while !wrong.is_empty() {
            let (lane, id) = (wrong.text()?, wrong.bytes()?);
            let (score, head) = (wrong.text()?, wrong.bytes()?);
            match member(shard, (By::Due, &lane), id, score, head, None) {
                Member::Row(..) => {}
                Member::Spoilt(spoilt) => self.found.unreadable.push(spoilt.unreadable()),
                Member::Misplaced(one) => misplaced.push(one),
            }
        }
        put_right(self.database, shard, &misplaced).await?;
        let mut absent = Vec::new();
        while !named.is_empty() {
            absent.extend(answer::id(&named.bytes()?));
        }
        Ok(Said { absent, looked })
    }
}

/// What a script has said beside what it has claimed.
struct Said {
    absent: Vec<TaskId>,
    /// How many of those named it looked at; or whether there may be more that are due.
    looked: usize,
}
