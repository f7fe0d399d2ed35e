//! Claims what is due, whether or not its wake-up has come.

use std::collections::BTreeMap;

use futures_util::stream::{FuturesOrdered, StreamExt};

use super::answer::{Answer, Items};
use super::arrive::look;
use super::claim::{ROWS, Room, Seen, claimer};
use super::closed::is_closed;
use super::codec::Brief;
use super::database::{Database, Request, Told};
use super::moving;
use super::repeat::Tries;
use super::together::{ON_THE_WAY, none_closed, those_that_succeeded, together};
use crate::redis::{Layout, Layouts, Lua, lua};
use crate::store::{Claim, Stamped};
use crate::{Error, Kind, Task, TaskId, Timestamp};

static READY: Lua = lua!("row.lua", "ready.lua");

/// How often due rows that others have taken meanwhile are looked for anew.
const ROUNDS: usize = 100;

pub(super) async fn ready(database: &Database, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
    let mut room = claim.room.clone();
    room.retain(|_, room| *room > 0);
    let layout = database.layouts().await?.current;
    let mut ready = Ready {
        database,
        layout,
        claim,
        room,
        now: None,
        found: Vec::new(),
    };
    let mut tries = Tries::default();
    for _ in 0..ROUNDS {
        if ready.room.is_empty() {
            break;
        }
        match ready.claim().await {
            Ok(false) => {}
            Ok(true) => break,
            // What has been claimed must not be lost by what comes after it.
            Err(error) if !ready.found.is_empty() && !is_closed(&error) => {
                tracing::warn!(%error, "not all due tasks were claimed");
                break;
            }
            Err(error) => tries.again(error)?,
        }
    }
    let Ready { now, mut found, .. } = ready;
    found.sort_by_key(|task| (task.due_at, task.id));
    let now = match now {
        Some(now) => now,
        None => database.now(database.layouts().await?.current).await?,
    };
    Ok(Stamped { now, found })
}

/// A claim of what is due, on the way.
struct Ready<'a> {
    database: &'a Database,
    layout: Layout,
    claim: &'a Claim,
    /// What is still to be had of each kind, left out where that is nothing.
    room: Room,
    now: Option<Timestamp>,
    found: Vec<Task>,
}

impl Ready<'_> {
    /// Claims what is to be had in one round; says whether that was all.
    async fn claim(&mut self) -> Result<bool, Error> {
        let layouts = self.database.layouts().await?;
        if let Some(former) = layouts.former {
            moving::unless_out_of_reach(self.bring(layouts, former).await)?;
        }
        self.layout = layouts.current;
        match self.layout.slots {
            1 => self.claim_in_order().await,
            _ => self.claim_among_slots().await,
        }
    }

    async fn bring(&self, layouts: Layouts, former: Layout) -> Result<(), Error> {
        let ids = self.due_in(former).await?;
        moving::bring(self.database, layouts, ids, []).await.map(drop)
    }

    /// What would be claimed first in each former slot.
    async fn due_in(&self, former: Layout) -> Result<Vec<TaskId>, Error> {
        let share = (ROWS / self.room.len()).max(1);
        let room = self.room.iter();
        let asked: Vec<_> = room
            .map(|(kind, room)| (kind.clone(), (*room).min(share)))
            .collect();
        let calls = former.all().map(|slot| {
            let database = self.database;
            let call = self::ask(database, former, slot, Told::OfThePast, self.claim, &asked, false);
            async move { Ok(database.write(call).await?.found) }
        });
        let mut due = Vec::new();
        for found in those_that_succeeded(together(calls).await)? {
            let Some(found) = found else { continue };
            let mut items = Items::of(found)?;
            while !items.is_empty() {
                let mut given = items.items()?;
                given.number()?;
                while !given.is_empty() {
                    due.push(given.id()?);
                    given.bytes()?;
                }
            }
        }
        Ok(due)
    }

    /// Claims where there is one slot; says whether that was all.
    async fn claim_in_order(&mut self) -> Result<bool, Error> {
        let Some(slot) = self.layout.all().next() else {
            return Ok(true);
        };
        let (database, layout, claim) = (self.database, self.layout, self.claim);
        let mut open = self.room.clone();
        let mut failed = None;
        let mut on_the_way = FuturesOrdered::new();
        loop {
            // Only where the first call gave something there may be more for others.
            let most = if self.found.is_empty() { 1 } else { ON_THE_WAY };
            while on_the_way.len() < most && !open.is_empty() {
                let asked = first_of(&mut open);
                let call = self::ask(database, layout, slot, Told::No, claim, &asked, true);
                on_the_way.push_back(async move { (asked, database.write_if_near(call).await) });
            }
            let Some((asked, answer)) = on_the_way.next().await else {
                break;
            };
            match answer.and_then(|answer| self.take_claimed(asked, answer)) {
                Ok(()) => open.retain(|kind, _| self.room.contains_key(kind)),
                // What other calls have claimed is claimed.
                Err(error) => {
                    failed = Some(error);
                    open.clear();
                }
            }
        }
        failed.map_or_else(|| Ok(self.room.is_empty()), Err)
    }

    fn take_claimed(&mut self, asked: Vec<(Kind, usize)>, answer: Answer) -> Result<(), Error> {
        self.heard(answer.now);
        let mut items = Items::of(answer.found)?;
        for (kind, count) in asked {
            let mut given = items.items()?;
            let has_more = usize::try_from(given.number()?).is_ok_and(|given| given >= count);
            while !given.is_empty() {
                let id = given.id()?;
                match given.task(id) {
                    Ok(task) => self.found.push(task),
                    Err(error) => tracing::error!(%id, %error, "a row cannot be read: it does not run"),
                }
                self.take(&kind);
            }
            if !has_more {
                self.room.remove(&kind);
            }
        }
        Ok(())
    }

    /// Claims among several slots: asks each what it has, and claims what is surely due before anything that was not
    /// given. Says whether that was all.
    async fn claim_among_slots(&mut self) -> Result<bool, Error> {
        let slots = usize::from(self.layout.slots);
        let share = (ROWS / self.room.len()).max(1);
        let asked: Vec<_> = self
            .room
            .iter()
            .map(|(kind, room)| (kind.clone(), (*room).min(room / slots + 16).min(share)))
            .collect();
        let calls: Vec<_> = self
            .layout
            .all()
            .map(|slot| {
                let database = self.database;
                let call = self::ask(database, self.layout, slot, Told::No, self.claim, &asked, false);
                // Not a read: what does not belong into a queue is taken away.
                async move { database.write_if_near(call).await }
            })
            .collect();
        let mut due = BTreeMap::<Kind, Vec<Brief>>::new();
        // Where a queue had more to give, what came after the last that it gave is not known.
        let mut known_until = BTreeMap::<Kind, (Timestamp, TaskId)>::new();
        let answers = none_closed(together(calls).await)?;
        for answer in those_that_succeeded(answers)?.into_iter().flatten() {
            self.heard(answer.now);
            let mut items = Items::of(answer.found)?;
            for (kind, count) in &asked {
                let mut given = items.items()?;
                let has_more = usize::try_from(given.number()?).is_ok_and(|given| given >= *count);
                let mut last = None;
                while !given.is_empty() {
                    let id = given.id()?;
                    let row = given.brief(id)?;
                    last = Some((row.pending.due_at, id));
                    due.entry(kind.clone()).or_default().push(row);
                }
                if has_more {
                    let last = last.unwrap_or((Timestamp::MIN, TaskId::from_bytes([0; 16])));
                    let until = known_until.entry(kind.clone()).or_insert(last);
                    *until = (*until).min(last);
                }
            }
        }
        let mut wakes = Vec::new();
        let mut is_over = true;
        for (kind, mut rows) in due {
            rows.sort_by_key(|row| (row.pending.due_at, row.pending.wake.id));
            let room = self.room.get(&kind).copied().unwrap_or(0);
            let until = known_until.get(&kind);
            let is_known =
                |row: &Brief| until.is_none_or(|until| (row.pending.due_at, row.pending.wake.id) <= *until);
            wakes.extend(
                rows.into_iter()
                    .filter(is_known)
                    .take(room)
                    .map(|row| row.pending.wake),
            );
            is_over &= until.is_none();
        }
        let meant = wakes.len();
        let mut room = self.room.clone();
        let (_, seen) = look(self.database, &wakes, self.claim, &mut room).await?;
        let before = self.found.len();
        for (place, seen) in seen {
            match seen {
                Seen::Claimed(task) => {
                    self.found.push(task);
                    self.take(&wakes[place].kind);
                }
                Seen::Unreadable => self.take(&wakes[place].kind),
                Seen::Early(_) | Seen::Waiting(_) | Seen::Stale => {}
            }
        }
        // What others were faster at leaves room for what comes after it.
        is_over &= self.found.len() - before == meant;
        Ok(is_over || self.room.is_empty())
    }

    fn heard(&mut self, now: Timestamp) {
        self.now = Some(self.now.map_or(now, |earlier| earlier.min(now)));
    }

    fn take(&mut self, kind: &Kind) {
        if let Some(room) = self.room.get_mut(kind) {
            *room -= 1;
            if *room == 0 {
                self.room.remove(kind);
            }
        }
    }
}

/// Takes as much from the room as one call gives.
fn first_of(room: &mut Room) -> Vec<(Kind, usize)> {
    let mut left = ROWS;
    let mut asked = Vec::new();
    for (kind, room) in room.iter_mut() {
        let count = (*room).min(left);
        left -= count;
        *room -= count;
        if count > 0 {
            asked.push((kind.clone(), count));
        }
    }
    room.retain(|_, room| *room > 0);
    asked
}

fn ask(
    database: &Database,
    layout: Layout,
    slot: crate::redis::Slot,
    told: Told,
    claim: &Claim,
    asked: &[(Kind, usize)],
    claims: bool,
) -> Request {
    let mut call = database.script(&READY, slot, told, layout);
    call.arg(u8::from(claims));
    claimer(&mut call, claim);
    for (kind, count) in asked {
        call.arg(kind.as_str()).arg(*count);
    }
    call
}
