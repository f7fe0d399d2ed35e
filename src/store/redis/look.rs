//! Looks which rows of a shard come first, of every kind, in calls of which none is long.

use std::time::Duration;

use redis::Value;

use super::answer::{Items, span};
use super::codec::Brief;
use super::database::Database;
use super::shards::Shard;
use crate::redis::{Lua, lua};
use crate::store::{Ahead, Pending, Stamped, row};
use crate::timestamp::millis;
use crate::{Error, Timestamp};

static LANES: Lua = lua!("row.lua", "passes.lua", "lanes.lua");
static LOOK: Lua = lua!("row.lua", "passes.lua", "look.lua");

/// How many kinds of each state one call names.
const KINDS: usize = 500;
/// How many rows one call gives, and of how many lanes.
const ROWS: usize = 100;
const LANES_AT_ONCE: usize = 50;

/// Rows of one state and kind, by the name of their lane.
pub(super) struct Lane {
    pub(super) name: String,
    pub(super) rows: Vec<Brief>,
    /// Whether there are more than were asked for.
    pub(super) has_more: bool,
}

/// What a look at a shard has found.
pub(super) struct Look {
    pub(super) now: Timestamp,
    pub(super) overdue: Vec<Lane>,
    /// In how long the next row is overdue.
    pub(super) next_wake: Option<Duration>,
    pub(super) ahead: Vec<Pending>,
    /// In how long the next row is due that is not ahead yet.
    pub(super) next_due: Option<Duration>,
}

/// Which kinds need a look.
struct Lanes {
    now: Timestamp,
    overdue: Vec<String>,
    next_wake: Option<Duration>,
    ahead: Vec<String>,
    next_due: Option<Duration>,
}

/// A shard to look at.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) database: &'a Database,
    pub(super) shards: u16,
    pub(super) shard: Shard,
}

impl Place<'_> {
    /// The rows of some states whose `wake_at` has passed, up to `limit` of each state and kind, and what lies ahead.
    pub(super) async fn look(self, states: &str, limit: usize, ahead: Option<Ahead>) -> Result<Look, Error> {
        let lanes = self.lanes(states, ahead).await?;
        let (overdue, _) = self.first("wake", &lanes.overdue, limit, None).await?;
        let mut found = Vec::new();
        let mut next_due = lanes.next_due;
        if let Some(ahead) = ahead {
            let span = (Ahead::from(lanes.now), lanes.now.after(ahead.within));
            let (coming, next) = self.first("due", &lanes.ahead, ahead.limit, Some(span)).await?;
            let rows = coming.into_iter().flat_map(|lane| lane.rows);
            found.extend(rows.map(|row| row::pending(&row.task)));
            next_due = [next_due, next].into_iter().flatten().min();
        }
        Ok(Look {
            now: lanes.now,
            overdue,
            next_wake: lanes.next_wake,
            ahead: found,
            next_due,
        })
    }

    async fn lanes(self, states: &str, ahead: Option<Ahead>) -> Result<Lanes, Error> {
        let mut lanes: Option<Lanes> = None;
        let mut skipped = 0;
        loop {
            let mut call = self.database.script(&LANES, self.shard, self.shards, false);
            call.arg(states).arg(skipped).arg(KINDS);
            match ahead {
                Some(ahead) => call.arg(millis(ahead.within)),
                None => call.arg(-1),
            };
            let Stamped { now, found } = self.written(call).await?;
            let mut items = Items::of(found)?;
            let overdue = items.items()?.texts()?;
            let next_wake = span(items.number()?);
            let ahead = items.items()?.texts()?;
            let next_due = span(items.number()?);
            let has_more = items.number()? == 1;
            let all = lanes.get_or_insert(Lanes {
                now,
                overdue: Vec::new(),
                next_wake,
                ahead: Vec::new(),
                next_due,
            });
            all.overdue.extend(overdue);
            all.next_wake = [all.next_wake, next_wake].into_iter().flatten().min();
            all.ahead.extend(ahead);
            all.next_due = [all.next_due, next_due].into_iter().flatten().min();
            if !has_more {
                break;
            }
            skipped += KINDS;
        }
        lanes.ok_or_else(|| super::answer::unexpected(&Value::Nil))
    }

    /// The first rows of lanes, up to `limit` of each; and in how long the first comes of those that are out of the span of
    /// time yet.
    pub(super) async fn first(
        self,
        index: &str,
        lanes: &[String],
        limit: usize,
        within: Option<(Timestamp, Timestamp)>,
    ) -> Result<(Vec<Lane>, Option<Duration>), Error> {
        let mut left: Vec<_> = lanes
            .iter()
            .map(|name| Lane {
                name: name.clone(),
                rows: Vec::new(),
                has_more: false,
            })
            .map(|lane| (lane, 0))
            .collect();
        left.retain(|_| limit > 0);
        let mut done = Vec::with_capacity(left.len());
        let mut next = None;
        while !left.is_empty() {
            let mut asked = left.split_off(left.len().saturating_sub(LANES_AT_ONCE));
            let share = (ROWS / asked.len()).max(1);
            let mut call = self.database.script(&LOOK, self.shard, self.shards, false);
            let texts = within.map(|(from, until)| [from, until].map(|time| time.as_millis().to_string()));
            let [from, until] = texts.unwrap_or_default();
            call.arg(index).arg(from).arg(until);
            for (lane, offset) in &asked {
                call.arg(&lane.name).arg(*offset).arg(share.min(limit - *offset));
            }
            let mut items = Items::of(self.written(call).await?.found)?;
            for (lane, offset) in &mut asked {
                let mut given = items.items()?;
                let count = given.count()?;
                let wanted = share.min(limit - *offset);
                next = [next, span(given.number()?)].into_iter().flatten().min();
                while !given.is_empty() {
                    let id = given.id()?;
                    lane.rows.push(given.brief(id)?);
                }
                *offset += count;
                lane.has_more = count >= wanted;
            }
            for (lane, offset) in asked {
                if lane.has_more && offset < limit {
                    left.push((lane, offset));
                } else {
                    done.push(lane);
                }
            }
        }
        Ok((done, next))
    }

    async fn written(self, call: super::database::Request) -> Result<Stamped<Value>, Error> {
        let answer = self.database.write(call).await?;
        let (now, found) = (answer.now, answer.found);
        Ok(Stamped { now, found })
    }
}
