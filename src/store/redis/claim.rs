//! Looks at rows, and claims those that are due.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::answer::Items;
use super::codec::Brief;
use super::database::{Database, Request, Told, those_that_succeeded, together};
use crate::redis::{Layout, Lua, Slot, lua};
use crate::store::{Claim, Looked, Pending, Stamped};
use crate::timestamp::millis;
use crate::{Error, Kind, Task, TaskId, Timestamp, Wake};

static ARRIVE: Lua = lua!("row.lua", "arrive.lua");
static READY: Lua = lua!("row.lua", "ready.lua");

/// How many rows go into one call: a bound on how long it keeps the server from others.
const ROWS: usize = 50;
/// How often due rows that others have taken meanwhile are looked for anew.
const ROUNDS: usize = 100;

/// What is still to be had of each kind.
pub(super) type Room = BTreeMap<Kind, usize>;

/// What a look found at one wake-up.
pub(super) enum Seen {
    Claimed(Task),
    /// A claimed row that cannot be read: it does not run, and must not keep others from it.
    Unreadable,
    Early(Pending),
    Waiting(Kind),
    Stale,
}

/// Wake-ups of one slot that go into one call, each with its place in the batch.
struct Part {
    slot: Slot,
    wakes: Vec<(usize, Wake)>,
    room: Room,
}

pub(super) async fn arrive(
    database: &Arc<Database>,
    wakes: &[Wake],
    claim: &Claim,
) -> Result<Stamped<Looked>, Error> {
    let layout = database.layout().await?;
    let mut room = claim.room.clone();
    let (now, seen) = look(database, layout, wakes, claim, &mut room).await?;
    let mut found = Looked::default();
    for seen in seen.into_values() {
        match seen {
            Seen::Claimed(task) => found.claimed.push(task),
            Seen::Early(row) => found.early.push(row),
            Seen::Waiting(kind) => *found.waiting.entry(kind).or_default() += 1,
            Seen::Stale => found.stale += 1,
            Seen::Unreadable => {}
        }
    }
    let now = match now {
        Some(now) => now,
        None => database.now(layout).await?,
    };
    Ok(Stamped { now, found })
}

/// Looks at wake-ups, and takes what is claimed from the room. What was seen is by their places in the batch; those whose
/// servers cannot be reached are left out, unless that is all.
async fn look(
    database: &Arc<Database>,
    layout: Layout,
    wakes: &[Wake],
    claim: &Claim,
    room: &mut Room,
) -> Result<(Option<Timestamp>, BTreeMap<usize, Seen>), Error> {
    let mut seen = BTreeMap::new();
    let mut now = None;
    // At first each call is given room of its own, so that all can be made side by side.
    let mut parts = parts(layout, wakes.iter().cloned().enumerate());
    for part in &mut parts {
        for (_, wake) in &part.wakes {
            if let Some(left) = room.get_mut(&wake.kind).filter(|left| **left > 0) {
                *left -= 1;
                *part.room.entry(wake.kind.clone()).or_default() += 1;
            }
        }
    }
    let calls: Vec<_> = parts
        .into_iter()
        .map(|part| look_at(Arc::clone(database), layout, part, claim.clone()))
        .collect();
    let answers = those_that_succeeded(together(calls).await)?;
    for answer in answers.into_iter().flatten() {
        now = Some(now.map_or(answer.now, |now: Timestamp| now.min(answer.now)));
        for (kind, left) in answer.found.1 {
            *room.entry(kind).or_default() += left;
        }
        seen.extend(answer.found.0);
    }
    // What was reserved and not used is for those that had none.
    let waiting = seen.iter().filter(
        |(_, seen)| matches!(seen, Seen::Waiting(kind) if room.get(kind).is_some_and(|left| *left > 0)),
    );
    let waiting: Vec<_> = waiting
        .map(|(place, _)| (*place, wakes[*place].clone()))
        .collect();
    for mut part in self::parts(layout, waiting.into_iter()) {
        part.room = std::mem::take(room);
        let answer = look_at(Arc::clone(database), layout, part, claim.clone()).await?;
        *room = answer.found.1;
        seen.extend(answer.found.0);
    }
    Ok((now, seen))
}

fn parts(layout: Layout, wakes: impl Iterator<Item = (usize, Wake)>) -> Vec<Part> {
    let mut by_slot = BTreeMap::<Slot, Vec<_>>::new();
    for (place, wake) in wakes {
        by_slot
            .entry(layout.slot(wake.id))
            .or_default()
            .push((place, wake));
    }
    let mut parts = Vec::new();
    for (slot, wakes) in by_slot {
        for wakes in wakes.chunks(ROWS) {
            parts.push(Part {
                slot,
                wakes: wakes.to_vec(),
                room: Room::new(),
            });
        }
    }
    parts
}

/// What was seen, by place, and the room that is left.
type SeenAndLeft = (Vec<(usize, Seen)>, Room);

async fn look_at(
    database: Arc<Database>,
    layout: Layout,
    part: Part,
    claim: Claim,
) -> Result<Stamped<SeenAndLeft>, Error> {
    let Part {
        slot,
        wakes,
        mut room,
    } = part;
    let mut call = database.script(&ARRIVE, slot, Told::No, layout);
    claimer(&mut call, &claim);
    call.arg(room.len());
    for (kind, room) in &room {
        call.arg(kind.as_str()).arg(*room);
    }
    for (_, wake) in &wakes {
        call.arg(wake.id.as_bytes()).arg(wake.version);
    }
    let answer = database.write_if_near(call).await?;
    let mut items = Items::of(answer.found)?;
    let mut seen = Vec::with_capacity(wakes.len());
    for (place, wake) in wakes {
        let one = seen_of(wake.id, &mut items.items()?)?;
        if let Seen::Claimed(Task { kind, .. }) = &one
            && let Some(left) = room.get_mut(kind)
        {
            *left = left.saturating_sub(1);
        }
        seen.push((place, one));
    }
    Ok(Stamped {
        now: answer.now,
        found: (seen, room),
    })
}

/// Who claims and for how long, as scripts take it.
pub(super) fn claimer(call: &mut Request, claim: &Claim) {
    // As much as a row has room for: owners are for people.
    let mut owner = &*claim.owner;
    if owner.len() > usize::from(u16::MAX) {
        let end = (0..=usize::from(u16::MAX)).rev();
        let end = end.into_iter().find(|&end| owner.is_char_boundary(end));
        owner = &owner[..end.unwrap_or(0)];
    }
    call.arg(owner).arg(millis(claim.lease));
}

/// What a script says of one row: a number, and what belongs to it.
pub(super) fn seen_of(id: TaskId, items: &mut Items) -> Result<Seen, Error> {
    Ok(match items.number()? {
        0 => match items.task(id) {
            Ok(task) => Seen::Claimed(task),
            Err(error) => {
                tracing::error!(%id, %error, "a row cannot be read: it does not run");
                Seen::Unreadable
            }
        },
        1 => Seen::Early(items.brief(id)?.pending),
        2 => Seen::Waiting(items.text()?.into()),
        _ => Seen::Stale,
    })
}

pub(super) async fn ready(database: &Arc<Database>, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
    let layout = database.layout().await?;
    let mut room = claim.room.clone();
    room.retain(|_, room| *room > 0);
    let mut ready = Ready {
        database,
        layout,
        claim,
        room,
        now: None,
        found: Vec::new(),
    };
    for _ in 0..ROUNDS {
        let is_over = ready.room.is_empty()
            || if layout.slots == 1 {
                ready.claim_in_order().await?
            } else {
                ready.claim_among_slots().await?
            };
        if is_over {
            break;
        }
    }
    let Ready { now, mut found, .. } = ready;
    found.sort_by_key(|task| (task.due_at, task.id));
    let now = match now {
        Some(now) => now,
        None => database.now(layout).await?,
    };
    Ok(Stamped { now, found })
}

/// A claim of what is due, on the way.
struct Ready<'a> {
    database: &'a Arc<Database>,
    layout: Layout,
    claim: &'a Claim,
    /// What is still to be had of each kind, left out where that is nothing.
    room: Room,
    now: Option<Timestamp>,
    found: Vec<Task>,
}

impl Ready<'_> {
    /// Claims where there is one slot, in one step; says whether that was all.
    async fn claim_in_order(&mut self) -> Result<bool, Error> {
        let Some(slot) = self.layout.all().next() else {
            return Ok(true);
        };
        let mut left = ROWS;
        let mut asked = Vec::new();
        for (kind, room) in &self.room {
            let count = (*room).min(left);
            left -= count;
            if count > 0 {
                asked.push((kind.clone(), count));
            }
        }
        let call = self::ask(self.database, self.layout, slot, self.claim, &asked, true);
        let answer = match self.database.write_if_near(call).await {
            Ok(answer) => answer,
            // What has been claimed must not be lost by what comes after it.
            Err(error) if !self.found.is_empty() => {
                tracing::warn!(%error, "not all due tasks were claimed");
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
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
        Ok(self.room.is_empty())
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
                let database = Arc::clone(self.database);
                let call = self::ask(&database, self.layout, slot, self.claim, &asked, false);
                // Not a read: what does not belong into a queue is taken away.
                async move { database.write_if_near(call).await }
            })
            .collect();
        let mut due = BTreeMap::<Kind, Vec<Brief>>::new();
        // Where a queue had more to give, what came after the last that it gave is not known.
        let mut known_until = BTreeMap::<Kind, (Timestamp, TaskId)>::new();
        for answer in those_that_succeeded(together(calls).await)?.into_iter().flatten() {
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
        let looked = look(self.database, self.layout, &wakes, self.claim, &mut room).await;
        let seen = match looked {
            Ok((_, seen)) => seen,
            Err(error) if !self.found.is_empty() => {
                tracing::warn!(%error, "not all due tasks were claimed");
                return Ok(true);
            }
            Err(error) => return Err(error),
        };
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

fn ask(
    database: &Database,
    layout: Layout,
    slot: Slot,
    claim: &Claim,
    asked: &[(Kind, usize)],
    claims: bool,
) -> Request {
    let mut call = database.script(&READY, slot, Told::No, layout);
    call.arg(u8::from(claims));
    claimer(&mut call, claim);
    for (kind, count) in asked {
        call.arg(kind.as_str()).arg(*count);
    }
    call
}
