//! Takes rows whose `wake_at` has passed.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::answer::{Items, span};
use super::claim::{self, Room, Seen};
use super::codec::Brief;
use super::database::{Database, Told};
use super::listen::Horizon;
use super::moving;
use super::repeat::Tries;
use super::together::{none_closed, those_that_succeeded, together};
use super::upcoming::{self, Further};
use crate::redis::{Layout, Layouts, Lua, Slot, lua};
use crate::store::{Ahead, Claim, Looked, Pending, Stamped, Sweep};
use crate::timestamp::millis;
use crate::{Error, Kind, TaskId, Timestamp};

static OVERDUE: Lua = lua!("row.lua", "intents.lua", "ahead.lua", "overdue.lua");
pub(super) static SWEEP: Lua = lua!("row.lua", "sweep.lua");

/// How many rows of a lane one call tells, and how many another one takes: bounds on how long they keep the server from
/// others.
const TOLD: usize = 100;
const TAKEN: usize = 50;

/// What a sweep looks at: scheduled and running rows.
pub(super) const LIVE: &str = "01";
/// What is removed when its history is over: done and cancelled rows.
pub(super) const FINISHED: &str = "24";

pub(super) async fn sweep(
    database: &Database,
    claim: &Claim,
    sweep: &Sweep,
) -> Result<Stamped<Looked>, Error> {
    let mut tries = Tries::default();
    loop {
        match sweep_once(database, claim, sweep).await {
            Err(error) => tries.again(error)?,
            swept => return swept,
        }
    }
}

async fn sweep_once(database: &Database, claim: &Claim, sweep: &Sweep) -> Result<Stamped<Looked>, Error> {
    let layouts = database.layouts().await?;
    let layout = layouts.current;
    let is_listening = database.listener.is_listening();
    let loud = |slots: Vec<Slot>| match is_listening {
        true => {
            let ahead = sweep.ahead.map(|ahead| ahead.within);
            database.quiet.swept(slots.into_iter(), ahead)
        }
        false => Err(slots),
    };
    if let Some(former) = layouts.former
        && let Err(slots) = loud(former.all().collect())
    {
        let brought = bring(database, layouts, LIVE, sweep.limit, sweep.ahead, slots).await;
        moving::unless_out_of_reach(brought)?;
    }
    let slots = match loud(layout.all().collect()) {
        Ok(now) => {
            let found = Looked::default();
            return Ok(Stamped { now, found });
        }
        Err(loud) => loud,
    };
    let mut taking = Taking {
        database,
        layout,
        claim,
        sweep,
        room: claim.room.clone(),
        left: BTreeMap::new(),
        seen: BTreeSet::new(),
        staying: BTreeMap::new(),
        now: None,
        found: Looked::default(),
    };
    let mut asked: Vec<_> = slots.into_iter().map(|slot| (slot, Vec::new())).collect();
    let mut is_first = true;
    while !asked.is_empty() {
        let ahead = sweep.ahead.filter(|_| is_first);
        let looks = look(database, layout, Told::No, LIVE, sweep.limit, ahead, asked).await;
        let looks = match none_closed(looks).and_then(those_that_succeeded) {
            Ok(looks) => looks,
            // What has been claimed must not be lost by what comes after it.
            Err(error) if !is_first => {
                tracing::warn!(%error, "a sweep was cut short");
                break;
            }
            Err(error) => return Err(error),
        };
        is_first = false;
        asked = taking.take(looks.into_iter().flatten().collect()).await?;
    }
    let Taking { now, mut found, .. } = taking;
    if let Some(ahead) = sweep.ahead {
        found.forget_claimed();
        found.ahead.sort_by_key(|row| (row.due_at, row.wake.id));
        found.ahead.truncate(ahead.limit);
    }
    let now = match now {
        Some(now) => now,
        None => database.now(layout).await?,
    };
    Ok(Stamped { now, found })
}

/// Brings what a look finds in former slots, up to `limit` rows of each lane.
pub(super) async fn bring(
    database: &Database,
    layouts: Layouts,
    states: &'static str,
    limit: usize,
    mut ahead: Option<Ahead>,
    slots: Vec<Slot>,
) -> Result<(), Error> {
    let Some(former) = layouts.former else {
        return Ok(());
    };
    let mut left = BTreeMap::<String, usize>::new();
    let mut asked: Vec<_> = slots.into_iter().map(|slot| (slot, Vec::new())).collect();
    while !asked.is_empty() {
        let looks = look(
            database,
            former,
            Told::OfThePast,
            states,
            limit,
            ahead.take(),
            asked,
        )
        .await;
        let mut again = BTreeMap::<Slot, Vec<(String, usize)>>::new();
        let mut ids = BTreeSet::new();
        for look in those_that_succeeded(looks)?.into_iter().flatten() {
            ids.extend(look.ahead.iter().map(|row| row.wake.id));
            for overdue in look.lanes {
                let left = left.entry(overdue.lane.clone()).or_insert(limit);
                *left = left.saturating_sub(overdue.rows.len());
                ids.extend(overdue.rows.iter().map(|row| row.pending.wake.id));
                if overdue.has_more && !overdue.rows.is_empty() {
                    again.entry(look.slot).or_default().push((overdue.lane, 0));
                }
            }
        }
        moving::bring(database, layouts, ids, []).await?;
        for lanes in again.values_mut() {
            lanes.retain(|(lane, _)| left.get(lane).is_none_or(|left| *left > 0));
        }
        again.retain(|_, lanes| !lanes.is_empty());
        asked = again.into_iter().collect();
    }
    Ok(())
}

/// What `overdue.lua` says of a slot.
pub(super) struct Look {
    pub(super) slot: Slot,
    now: Timestamp,
    pub(super) lanes: Vec<Overdue>,
    ahead: Vec<Pending>,
}

/// The rows of a lane whose `wake_at` has passed.
pub(super) struct Overdue {
    pub(super) lane: String,
    /// Whether there may be more of them.
    pub(super) has_more: bool,
    pub(super) rows: Vec<Brief>,
}

/// Looks at slots, all their lanes or some of them, each from some place on.
pub(super) async fn look(
    database: &Database,
    layout: Layout,
    told: Told,
    states: &'static str,
    limit: usize,
    ahead: Option<Ahead>,
    asked: Vec<(Slot, Vec<(String, usize)>)>,
) -> Vec<Result<Look, Error>> {
    let calls = asked
        .into_iter()
        .map(|asked| look_at(database, layout, told, states, limit, ahead, asked));
    together(calls).await
}

async fn look_at(
    database: &Database,
    layout: Layout,
    told: Told,
    states: &'static str,
    limit: usize,
    ahead: Option<Ahead>,
    (slot, lanes): (Slot, Vec<(String, usize)>),
) -> Result<Look, Error> {
    let is_sweep = states == LIVE;
    let mut call = database.script(&OVERDUE, slot, told, layout);
    call.arg(states).arg(limit.min(TOLD));
    match ahead {
        Some(ahead) => call.arg(millis(ahead.within)),
        None => call.arg(-1),
    };
    call.arg(millis(Ahead::SINCE))
        .arg(ahead.map_or(0, |ahead| ahead.limit));
    for (lane, offset) in &lanes {
        call.arg(lane).arg(*offset);
    }
    let since = database.quiet.looking(slot);
    let answer = database.write_if_near(call).await?;
    let now = answer.now;
    let mut items = Items::of(answer.found)?;
    let next_wake = span(items.number()?);
    let mut found = Vec::new();
    let mut overdue = items.items()?;
    while !overdue.is_empty() {
        let mut lane = overdue.items()?;
        let name = lane.text()?;
        let given = usize::try_from(lane.number()?).unwrap_or(0);
        let mut rows = Vec::new();
        while !lane.is_empty() {
            let id = lane.id()?;
            rows.push(lane.brief(id)?);
        }
        found.push(Overdue {
            lane: name,
            // As many as a call gives are at least so many.
            has_more: given >= limit.min(10),
            rows,
        });
    }
    let next_due = span(items.number()?);
    let mut rows_ahead = upcoming::rows(items.items()?)?;
    let mut further = Further::read(items.items()?)?;
    while let (Some(ahead), Some(on)) = (ahead, further) {
        let more;
        (more, further) = upcoming::page(database, layout, slot, told, ahead, Some(on))
            .await?
            .found;
        rows_ahead.extend(more);
    }
    if lanes.is_empty() {
        // What is not told and not written here is found all the same, only later.
        let longest = Horizon::of(layout).quiet;
        let within = ahead.map(|ahead| ahead.within);
        let due = next_due.map(|due| due.saturating_sub(within.unwrap_or_default()));
        // What lies ahead is told by every sweep, until it is past.
        let ahead = (!rows_ahead.is_empty()).then_some(Duration::ZERO);
        let pause = [next_wake, due, ahead].into_iter().flatten().min();
        if is_sweep {
            let pause = pause.unwrap_or(Duration::MAX).min(longest);
            database.quiet.looked(slot, since, pause, within);
        } else {
            let pause = pause.unwrap_or(Duration::MAX).min(PURGE_AT_LEAST);
            database.quiet.looked_for_past(slot, since, pause);
        }
    }
    Ok(Look {
        slot,
        now,
        lanes: found,
        ahead: rows_ahead,
    })
}

/// How long a slot is not asked what to remove at the most: others may keep history for a shorter time.
const PURGE_AT_LEAST: Duration = Duration::from_secs(600);

/// A sweep on the way.
struct Taking<'a> {
    database: &'a Database,
    layout: Layout,
    claim: &'a Claim,
    sweep: &'a Sweep,
    room: Room,
    /// How many more rows of each lane.
    left: BTreeMap<String, usize>,
    /// Rows that have been looked at.
    seen: BTreeSet<TaskId>,
    /// How many of each lane stay where they are, before whatever comes next.
    staying: BTreeMap<(Slot, String), usize>,
    now: Option<Timestamp>,
    found: Looked,
}

impl Taking<'_> {
    /// Does with the rows of some looks what is to be done; says where there may be more.
    async fn take(&mut self, looks: Vec<Look>) -> Result<Vec<(Slot, Vec<(String, usize)>)>, Error> {
        let mut rows = Vec::new();
        let mut lanes_with_more = Vec::new();
        for look in looks {
            self.now = Some(self.now.map_or(look.now, |now| now.min(look.now)));
            self.found.ahead.extend(look.ahead);
            for overdue in look.lanes {
                if overdue.has_more {
                    lanes_with_more.push((look.slot, overdue.lane.clone()));
                }
                for row in overdue.rows {
                    rows.push((overdue.lane.clone(), look.slot, look.now, row));
                }
            }
        }
        // Leases that have ended first, and of all others those that are overdue the longest.
        rows.sort_by_key(|(_, _, _, row)| (!row.is_running, row.wake_at, row.pending.wake.id));
        let mut by_slot = BTreeMap::<Slot, Vec<(Brief, bool)>>::new();
        let mut has_new = false;
        for (lane, slot, now, row) in rows {
            let wake = &row.pending.wake;
            if !self.seen.insert(wake.id) {
                *self.staying.entry((slot, lane)).or_default() += 1;
                continue;
            }
            let left = self.left.entry(lane.clone()).or_insert(self.sweep.limit);
            if *left == 0 {
                continue;
            }
            *left -= 1;
            has_new = true;
            let is_due = row.pending.due_at <= now;
            let has_room = is_due && take(&mut self.room, &wake.kind);
            if is_due && !has_room && !row.is_running {
                *self.found.waiting.entry(wake.kind.clone()).or_default() += 1;
                *self.staying.entry((slot, lane)).or_default() += 1;
                continue;
            }
            by_slot.entry(slot).or_default().push((row, has_room));
        }
        self.act(by_slot).await?;
        let mut again = BTreeMap::<Slot, Vec<(String, usize)>>::new();
        for (slot, lane) in lanes_with_more {
            let is_full = self.left.get(&lane).is_some_and(|left| *left == 0);
            if has_new && !is_full {
                let staying = self.staying.get(&(slot, lane.clone())).copied().unwrap_or(0);
                again.entry(slot).or_default().push((lane, staying));
            }
        }
        Ok(again.into_iter().collect())
    }

    async fn act(&mut self, by_slot: BTreeMap<Slot, Vec<(Brief, bool)>>) -> Result<(), Error> {
        let mut calls = Vec::new();
        for (slot, rows) in by_slot {
            for rows in rows.chunks(TAKEN) {
                let mut call = self.database.script(&SWEEP, slot, Told::No, self.layout);
                claim::claimer(&mut call, self.claim);
                call.arg(millis(self.sweep.retake));
                for (row, has_room) in rows {
                    let wake = &row.pending.wake;
                    call.arg(wake.id.as_bytes())
                        .arg(wake.version)
                        .arg(u8::from(*has_room));
                }
                let ids: Vec<_> = rows.iter().map(|(row, _)| row.pending.wake.id).collect();
                let database = self.database;
                calls.push(async move {
                    let mut items = Items::of(database.write_if_near(call).await?.found)?;
                    let mut said = Vec::with_capacity(ids.len());
                    for id in ids {
                        let mut items = items.items()?;
                        let seen = claim::seen_of(id, &mut items);
                        let has_ended = items.last_number()? == 1;
                        said.push((seen?, has_ended));
                    }
                    Ok(said)
                });
            }
        }
        if calls.is_empty() {
            return Ok(());
        }
        let said = match those_that_succeeded(together(calls).await) {
            Ok(said) => said,
            Err(error) if !self.found.claimed.is_empty() => {
                tracing::warn!(%error, "a sweep was cut short");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        for (seen, has_ended) in said.into_iter().flatten().flatten() {
            self.found.expired += usize::from(has_ended);
            match seen {
                Seen::Claimed(task) => self.found.claimed.push(task),
                Seen::Early(row) => self.found.early.push(row),
                Seen::Waiting(kind) => *self.found.waiting.entry(kind).or_default() += 1,
                // Somebody else was faster.
                Seen::Stale | Seen::Unreadable => {}
            }
        }
        Ok(())
    }
}

/// Takes one place of a kind, if there is one.
fn take(room: &mut Room, kind: &Kind) -> bool {
    let Some(left) = room.get_mut(kind).filter(|left| **left > 0) else {
        return false;
    };
    *left -= 1;
    true
}
