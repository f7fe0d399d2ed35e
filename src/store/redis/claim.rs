//! Claims rows that wake-ups name, or that a look has found, as far as there is room.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use futures_util::future::join_all;
use redis::Value;

use super::answer::{self, Items};
use super::codec::Brief;
use super::database::{Database, Request};
use super::parts::{Asking, ROWS};
use super::pointers::{Pointer, repoint};
use super::shards::{Shard, of_id};
use crate::backend::Wake;
use crate::redis::{Lua, Role, lua};
use crate::store::{Claim, Looked, Stamped, row};
use crate::timestamp::millis;
use crate::{Error, Kind, Task, TaskId, Timestamp};

static TAKE: Lua = lua!("row.lua", "passes.lua", "take.lua");
static HEADS: Lua = lua!("row.lua", "heads.lua");

/// What is still to be had.
#[derive(Clone, Debug, Default)]
pub(super) struct Room {
    /// How many rows of each kind.
    pub(super) kinds: BTreeMap<Kind, usize>,
    /// How many bytes of payloads.
    pub(super) bytes: usize,
}

impl Room {
    pub(super) fn of(claim: &Claim) -> Self {
        Self {
            kinds: claim.room.clone(),
            bytes: claim.bytes,
        }
    }

    /// Takes place for a row, if there is some.
    pub(super) fn take(&mut self, kind: &Kind, size: usize) -> bool {
        match self.kinds.get_mut(kind) {
            Some(left) if *left > 0 && self.bytes > 0 => {
                *left -= 1;
                self.bytes = self.bytes.saturating_sub(size);
                true
            }
            _ => false,
        }
    }
}

/// A row to take: in which shard, and as it was when it was looked at.
pub(super) type Row = (TaskId, u64);

/// Who claims, for how long, and what is noted of it, as scripts take it.
pub(super) fn claimer(call: &mut Request, claim: &Claim) {
    // As much as a row has room for: owners are for people.
    let mut owner = &*claim.owner;
    if owner.len() > usize::from(u16::MAX) {
        let end = (0..=usize::from(u16::MAX)).rev();
        let end = end.into_iter().find(|&end| owner.is_char_boundary(end));
        owner = &owner[..end.unwrap_or(0)];
    }
    call.arg(owner)
        .arg(millis(claim.lease))
        .arg(claim.claimed().unwrap_or_default());
}

/// What rows were chosen for, by shard; those first that have room kept for them.
#[derive(Default)]
pub(super) struct Chosen {
    rows: Vec<Row>,
    room: Room,
    /// Those of them whose ids do not say where they are, and by which tries these point here.
    tried: Vec<(TaskId, u64)>,
}

impl Chosen {
    pub(super) fn add(&mut self, row: &Brief, has_room: bool) {
        self.rows.push((row.task.id, row.task.version));
        if row.tried > 0 {
            self.tried.push((row.task.id, row.tried));
        }
        if has_room {
            *self.room.kinds.entry(row.task.kind.clone()).or_default() += 1;
            // One more than the last of them needs.
            self.room.bytes = self.room.bytes.max(1).saturating_add(row.size);
        }
    }
}

/// Claims on the way.
pub(super) struct Taking<'a> {
    pub(super) database: &'a Database,
    pub(super) shards: u16,
    pub(super) claim: &'a Claim,
    /// For how long a row is left alone that is not due, in a sweep.
    pub(super) retake: Option<std::time::Duration>,
}

/// What came of taking rows.
#[derive(Default)]
pub(super) struct Taken {
    pub(super) now: Option<Timestamp>,
    pub(super) found: Looked,
    /// Of how many rows something was said.
    pub(super) count: usize,
}

impl Taken {
    fn add(&mut self, other: Self) {
        self.now = [self.now, other.now].into_iter().flatten().min();
        self.count += other.count;
        self.found.claimed.extend(other.found.claimed);
        self.found.early.extend(other.found.early);
        for (kind, count) in other.found.waiting {
            *self.found.waiting.entry(kind).or_default() += count;
        }
        self.found.stale += other.found.stale;
        self.found.expired += other.found.expired;
    }
}

impl Taking<'_> {
    /// The same as [`take`](Self::take) of rows that were not found by their ids: what becomes of them will be told by these.
    pub(super) async fn take_found(&self, chosen: BTreeMap<Shard, Chosen>) -> Result<Taken, Error> {
        let mut astray = Vec::new();
        for (&shard, chosen) in &chosen {
            let here = chosen.tried.iter();
            astray.extend(here.map(|&(id, tried)| Pointer { id, shard, tried }));
        }
        let taken = self.take(chosen).await?;
        // No others: one that has come to its end meanwhile may be removed, and its pointer would stay.
        let claimed = taken.found.claimed.iter().map(|task| task.id);
        let early = taken.found.early.iter().map(|row| row.wake.id);
        let held: BTreeSet<_> = claimed.chain(early).collect();
        astray.retain(|row| held.contains(&row.id));
        repoint(self.database, self.shards, astray).await;
        Ok(taken)
    }

    /// Takes what was chosen in each shard. An error only if nothing was taken.
    pub(super) async fn take(&self, chosen: BTreeMap<Shard, Chosen>) -> Result<Taken, Error> {
        let calls = chosen.into_iter().map(|(shard, mut chosen)| async move {
            let mut taken = Taken::default();
            let came = self
                .take_in(shard, chosen.rows.into(), &mut chosen.room, &mut taken)
                .await;
            (taken, came)
        });
        let mut all = Taken::default();
        let mut failed = None;
        for (taken, came) in join_all(calls).await {
            all.add(taken);
            failed = came.err().or(failed);
        }
        match failed {
            Some(error) if all.now.is_none() => return Err(error),
            // What has been claimed must not be lost by what comes after it.
            Some(error) => {
                tracing::warn!(
                    %error,
                    "some tasks are on a Redis server that does not answer; they wait until it does"
                )
            }
            None => {}
        }
        Ok(all)
    }

    /// Takes rows of a shard, one part after the other, as far as there is room.
    pub(super) async fn take_in(
        &self,
        shard: Shard,
        mut rows: VecDeque<Row>,
        room: &mut Room,
        taken: &mut Taken,
    ) -> Result<(), Error> {
        while !rows.is_empty() {
            let part = rows.make_contiguous();
            let part = &part[..part.len().min(ROWS)];
            let mut call = self.database.script(&TAKE, shard, self.shards, false);
            claimer(&mut call, self.claim);
            call.arg(
                self.retake
                    .map(millis)
                    .map_or(String::new(), |retake| retake.to_string()),
            )
            .arg(u8::from(self.claim.expired().is_some()))
            .arg(room.bytes)
            .arg(room.kinds.len());
            for (kind, count) in &room.kinds {
                call.arg(kind.as_str()).arg(*count);
            }
            for (id, version) in part {
                call.arg(id.as_bytes()).arg(*version);
            }
            let answer = self.database.write(call).await?;
            taken.now = [taken.now, Some(answer.now)].into_iter().flatten().min();
            let mut items = Items::of(answer.found)?;
            let mut count = 0;
            for (id, _) in part {
                if !taken.add_said(*id, items.value()?, room)? {
                    break;
                }
                count += 1;
            }
            if count == 0 {
                return Err(Role::Store.error(false, "a script answered nothing"));
            }
            rows.drain(..count);
        }
        Ok(())
    }
}

impl Taken {
    /// Takes note of what a script says of a row; false if it is to be asked for again.
    fn add_said(&mut self, id: TaskId, said: Value, room: &mut Room) -> Result<bool, Error> {
        match said {
            Value::Int(8) => return Ok(false),
            Value::Int(4) => {
                tracing::error!(
                    %id,
                    "the row of a task cannot be read, so it does not run, and holds up no other; repair or remove \
                     it"
                )
            }
            Value::Int(_) => self.found.stale += 1,
            said => {
                let mut items = Items::of(said)?;
                let what = items.number()?;
                self.found.expired += items.count()?;
                match what {
                    0 => self.claimed(id, items.task(id), room),
                    1 => self.found.early.push(row::pending(&items.brief(id)?.task)),
                    _ => *self.found.waiting.entry(items.text()?.into()).or_default() += 1,
                }
            }
        }
        self.count += 1;
        Ok(true)
    }

    fn claimed(&mut self, id: TaskId, task: Result<Task, Error>, room: &mut Room) {
        match task {
            Ok(task) => {
                room.take(&task.kind, task.payload.len());
                self.found.claimed.push(task);
            }
            Err(error) => {
                tracing::error!(
                    %id, %error,
                    "the row of a task cannot be read, so it does not run, and holds up no other; repair or remove \
                     it"
                )
            }
        }
    }
}

pub(super) async fn arrive(
    database: &Database,
    wakes: &[Wake],
    claim: &Claim,
) -> Result<Stamped<Looked>, Error> {
    let shards = database.shards().await?;
    let mut room = Room::of(claim);
    let taking = Taking {
        database,
        shards,
        claim,
        retake: None,
    };
    let mut taken = Taken::default();
    if shards == 1 {
        let rows = wakes.iter().map(|wake| (wake.id, wake.version)).collect();
        let came = taking.take_in(0, rows, &mut room, &mut taken).await;
        match came {
            Err(error) if taken.now.is_none() => return Err(error),
            Err(error) => {
                tracing::warn!(
                    %error,
                    "some wake-ups are of tasks on a Redis server that does not answer; these wait for the sweep"
                )
            }
            Ok(()) => {}
        }
    } else {
        taken = arrive_among(&taking, wakes, room).await?;
    }
    let now = match taken.now {
        Some(now) => now,
        None => database.now().await?,
    };
    let found = taken.found;
    Ok(Stamped { now, found })
}

/// The same where rows are spread: what they need room for is looked at first.
async fn arrive_among(taking: &Taking<'_>, wakes: &[Wake], mut room: Room) -> Result<Taken, Error> {
    let (database, shards) = (taking.database, taking.shards);
    let asking = Asking {
        database,
        call: &|shard, wakes: &[&Wake]| {
            let mut call = database.script(&HEADS, shard, shards, false);
            for wake in wakes {
                call.arg(wake.id.as_bytes());
            }
            call
        },
        reads: true,
        size: |_| 0,
        read: &|wake: &Wake, shard, said, now| match said {
            Value::Int(_) => Ok(None),
            said => Ok(Some((shard, answer::brief(wake.id, &answer::bytes(said)?)?, now))),
        },
    };
    let looked = asking.ask(wakes, |wake| of_id(shards, wake.id)).await;
    let (now, looked) = looked.answered()?;
    let mut taken = Taken {
        now,
        ..Taken::default()
    };
    let mut chosen = BTreeMap::<Shard, Chosen>::new();
    for (wake, said) in wakes.iter().zip(looked) {
        match said {
            Ok(Some((shard, row, now))) => {
                if row.task.version == wake.version {
                    let has_room = row.task.due_at <= now && room.take(&row.task.kind, row.size);
                    chosen.entry(shard).or_default().add(&row, has_room);
                } else {
                    taken.found.stale += 1;
                }
            }
            Ok(None) => taken.found.stale += 1,
            Err(error) => {
                tracing::warn!(
                    %error,
                    "a wake-up is of a task on a Redis server that does not answer; it waits for the sweep"
                )
            }
        }
    }
    taken.add(taking.take(chosen).await?);
    Ok(taken)
}
