//! Claims what is due, whether or not its wake-up has come.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::answer::Items;
use super::claim::{Chosen, Room, Taking, claimer};
use super::codec::{Brief, lane};
use super::database::Database;
use super::look::Place;
use super::parts::{ROWS, those_that_succeeded};
use super::shards::Shard;
use super::sweep::share;
use crate::redis::{Lua, lua};
use crate::store::{Claim, Stamped};
use crate::{Error, Kind, State, Task, Timestamp, defaults};

static READY: Lua = lua!("row.lua", "passes.lua", "ready.lua");

/// How often due rows that others have taken meanwhile are looked for anew.
const ROUNDS: usize = 100;

pub(super) async fn ready(database: &Database, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
    let mut room = Room::of(claim);
    room.kinds.retain(|_, room| *room > 0);
    let mut ready = Ready {
        database,
        shards: database.shards().await?,
        claim,
        room,
        now: None,
        found: Vec::new(),
    };
    for _ in 0..ROUNDS {
        if ready.room.kinds.is_empty() || ready.room.bytes == 0 {
            break;
        }
        let is_over = match ready.shards {
            1 => ready.claim_in_order().await,
            _ => ready.claim_among_shards().await,
        };
        match is_over {
            Ok(false) => {}
            Ok(true) => break,
            // What has been claimed must not be lost by what comes after it.
            Err(error) if !ready.found.is_empty() => {
                tracing::warn!(
                    %error,
                    "some due tasks are on a Redis server that does not answer; they are late until it does"
                );
                break;
            }
            Err(error) => return Err(error),
        }
    }
    let Ready { now, mut found, .. } = ready;
    found.sort_by_key(|task| (task.due_at, task.id));
    let now = match now {
        Some(now) => now,
        None => database.now().await?,
    };
    Ok(Stamped { now, found })
}

/// A claim of what is due, on the way.
struct Ready<'a> {
    database: &'a Database,
    shards: u16,
    claim: &'a Claim,
    /// What is still to be had, kinds of which there is nothing left out.
    room: Room,
    now: Option<Timestamp>,
    found: Vec<Task>,
}

impl Ready<'_> {
    /// Claims as much as one call gives, where there is one shard; says whether that was all.
    async fn claim_in_order(&mut self) -> Result<bool, Error> {
        let mut call = self.database.script(&READY, 0, self.shards, false);
        claimer(&mut call, self.claim);
        call.arg(self.room.bytes);
        let mut left = ROWS;
        let mut asked = Vec::new();
        for (kind, room) in &self.room.kinds {
            let count = left.min(*room);
            if count == 0 {
                break;
            }
            left -= count;
            call.arg(kind.as_str()).arg(count);
            asked.push(kind.clone());
        }
        let answer = self.database.write(call).await?;
        self.now = self.now.or(Some(answer.now));
        let mut items = Items::of(answer.found)?;
        for kind in asked {
            let mut given = items.items()?;
            let has_more = given.number()? == 1;
            for (id, task) in given.tasks()? {
                match task {
                    Ok(task) => self.claimed(task),
                    Err(error) => {
                        tracing::error!(
                            %id, %error,
                            "the row of a task cannot be read, so it does not run, and holds up no other; repair \
                             or remove it"
                        )
                    }
                }
            }
            if !has_more {
                self.room.kinds.remove(&kind);
            }
        }
        Ok(self.room.kinds.is_empty())
    }

    /// Claims among several shards: asks each what it has, and claims what is surely due before anything that was not
    /// given. Says whether that was all.
    async fn claim_among_shards(&mut self) -> Result<bool, Error> {
        let kinds: Vec<_> = self.room.kinds.keys().cloned().collect();
        let lanes: Vec<_> = kinds.iter().map(|kind| lane(State::Scheduled, kind)).collect();
        let most = self.room.kinds.values().copied().max().unwrap_or(0);
        let (database, shards, lanes) = (self.database, self.shards, &lanes);
        let limit = share(most.min(defaults::BATCH), shards);
        let looks = (0..shards).map(|shard| async move {
            let place = Place {
                database,
                shards,
                shard,
            };
            let (found, _) = place.first("due", lanes, limit, None).await?;
            Ok((shard, found))
        });
        let looks = those_that_succeeded(join_all(looks).await)?;
        let mut due = Vec::new();
        // Where a lane had more to give, what comes after the last that it gave is not known.
        let mut known_until = BTreeMap::new();
        for (shard, found) in looks {
            for found in found {
                if let Some(last) = found.rows.last().filter(|_| found.has_more) {
                    let until = known_until.entry(found.name).or_insert(last.by_due());
                    *until = (*until).min(last.by_due());
                }
                due.extend(found.rows.into_iter().map(|row| (shard, row)));
            }
        }
        due.sort_by_key(|(_, row)| row.by_due());
        let is_known = |row: &Brief| {
            let until = known_until.get(&lane(State::Scheduled, &row.task.kind));
            until.is_none_or(|until| row.by_due() <= *until)
        };
        let mut chosen = BTreeMap::<Shard, Chosen>::new();
        let mut room = self.room.clone();
        let mut meant = 0;
        for (shard, row) in due.iter().filter(|(_, row)| is_known(row)) {
            if room.take(&row.task.kind, row.size) {
                meant += 1;
                chosen.entry(*shard).or_default().add(row, true);
            }
        }
        let taking = Taking {
            database,
            shards,
            claim: self.claim,
            retake: None,
        };
        let taken = taking.take_found(chosen).await?;
        self.now = [self.now, taken.now].into_iter().flatten().min();
        // What others were faster at leaves room for what comes after it.
        let is_over = known_until.is_empty() && taken.found.claimed.len() == meant;
        for task in taken.found.claimed {
            self.claimed(task);
        }
        Ok(is_over || meant == 0)
    }

    fn claimed(&mut self, task: Task) {
        self.room.take(&task.kind, task.payload.len());
        self.room.kinds.retain(|_: &Kind, room| *room > 0);
        self.found.push(task);
    }
}
