//! Looks at the rows that wake-ups name, and claims those that are due.

use std::collections::BTreeMap;

use super::answer::Items;
use super::claim::{ROWS, Room, Seen, claimer, seen_of};
use super::database::{Database, Told};
use super::moving;
use super::repeat::{Done, Tries};
use super::together::{those_that_succeeded, together};
use crate::redis::{Layout, Lua, Slot, lua};
use crate::store::{Claim, Looked, Stamped};
use crate::{Error, Task, Timestamp, Wake};

static ARRIVE: Lua = lua!("row.lua", "arrive.lua");

/// Wake-ups of one slot that go into one call, each with its place in the batch.
struct Part {
    slot: Slot,
    wakes: Vec<(usize, Wake)>,
    room: Room,
}

pub(super) async fn arrive(
    database: &Database,
    wakes: &[Wake],
    claim: &Claim,
) -> Result<Stamped<Looked>, Error> {
    let mut room = claim.room.clone();
    let (now, seen) = look(database, wakes, claim, &mut room).await?;
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
        None => database.now(database.layouts().await?.current).await?,
    };
    Ok(Stamped { now, found })
}

/// Looks at wake-ups, and takes what is claimed from the room. What was seen is by their places in the batch; those whose
/// servers cannot be reached are left out, unless that is all.
pub(super) async fn look(
    database: &Database,
    wakes: &[Wake],
    claim: &Claim,
    room: &mut Room,
) -> Result<(Option<Timestamp>, BTreeMap<usize, Seen>), Error> {
    let mut seen = BTreeMap::new();
    let mut now = None;
    let mut left: Vec<_> = wakes.iter().cloned().enumerate().collect();
    let mut tries = Tries::default();
    while !left.is_empty() {
        let ids = left.iter().map(|(_, wake)| wake.id);
        let looked = match moving::layout_with(database, &mut tries, ids).await {
            Ok((layout, out_of_reach)) => {
                left.retain(|(_, wake)| !out_of_reach.contains(&wake.id));
                look_once(database, layout, wakes, left, claim, room).await
            }
            Err(error) => Err(error),
        };
        let looked = match looked {
            Ok(looked) => looked,
            // What has been claimed must not be lost by what comes after it.
            Err(error) if !seen.is_empty() => {
                tracing::warn!(%error, "not all wake-ups were looked at");
                break;
            }
            Err(error) => return Err(error),
        };
        now = [now, looked.now].into_iter().flatten().min();
        seen.extend(looked.seen);
        left = looked.left;
        if let Some(error) = looked.closed
            && let Err(error) = tries.again(error)
        {
            tracing::warn!(%error, "not all wake-ups were looked at");
            break;
        }
    }
    Ok((now, seen))
}

/// What was seen at wake-ups, by their places, and what is to be looked at elsewhere.
struct LookedAt {
    now: Option<Timestamp>,
    seen: BTreeMap<usize, Seen>,
    left: Vec<(usize, Wake)>,
    closed: Option<Error>,
}

async fn look_once(
    database: &Database,
    layout: Layout,
    wakes: &[Wake],
    asked: Vec<(usize, Wake)>,
    claim: &Claim,
    room: &mut Room,
) -> Result<LookedAt, Error> {
    let mut looked = LookedAt {
        now: None,
        seen: BTreeMap::new(),
        left: Vec::new(),
        closed: None,
    };
    // At first each call is given room of its own, so that all can be made side by side.
    let mut parts = parts(layout, asked.into_iter());
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
        .map(|part| look_at(database, layout, part, claim.clone()))
        .collect();
    let answers = those_that_succeeded(together(calls).await)?;
    for part in answers.into_iter().flatten() {
        looked.take(part, room);
    }
    // What was reserved and not used is for those that had none.
    let waiting = looked.seen.iter().filter(
        |(_, seen)| matches!(seen, Seen::Waiting(kind) if room.get(kind).is_some_and(|left| *left > 0)),
    );
    let waiting: Vec<_> = waiting
        .map(|(place, _)| (*place, wakes[*place].clone()))
        .collect();
    for mut part in self::parts(layout, waiting.into_iter()) {
        part.room = std::mem::take(room);
        let part = look_at(database, layout, part, claim.clone()).await?;
        looked.take(part, room);
    }
    Ok(looked)
}

impl LookedAt {
    /// Takes what was seen at a part, and gives back the room that is left.
    fn take(&mut self, part: SeenPart, room: &mut Room) {
        for (kind, left) in part.room {
            *room.entry(kind).or_default() += left;
        }
        self.now = [self.now, part.now].into_iter().flatten().min();
        self.seen.extend(part.done.answers);
        self.left.extend(part.done.left);
        self.closed = part.done.closed.or(self.closed.take());
    }
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

/// What was seen at a part, and the room that is left.
struct SeenPart {
    now: Option<Timestamp>,
    done: Done<(usize, Seen), (usize, Wake)>,
    room: Room,
}

async fn look_at(database: &Database, layout: Layout, part: Part, claim: Claim) -> Result<SeenPart, Error> {
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
    let mut done = Done::new();
    let answer = match database.write_if_near(call).await {
        Ok(answer) => answer,
        Err(error) => {
            done = done.closed(error, wakes)?;
            let now = None;
            return Ok(SeenPart { now, done, room });
        }
    };
    let mut items = Items::of(answer.found)?;
    for (place, wake) in wakes {
        let one = seen_of(wake.id, &mut items.items()?)?;
        if let Seen::Claimed(Task { kind, .. }) = &one
            && let Some(left) = room.get_mut(kind)
        {
            *left = left.saturating_sub(1);
        }
        done.answers.push((place, one));
    }
    let now = Some(answer.now);
    Ok(SeenPart { now, done, room })
}
