//! Members of indexes that are not of rows that can be read, or not where they belong: somebody else has put them there.

use std::collections::BTreeMap;
use std::time::Duration;

use super::answer;
use super::codec;
use super::database::Database;
use super::shards::Shard;
use super::write::ROWS;
use crate::redis::{Lua, lua};
use crate::store::table::{By, Unreadable};
use crate::task::timestamp::millis;
use crate::{Error, Task, TaskId, Timestamp};

static ASIDE: Lua = lua!("shard.lua", "lanes.lua", "aside.lua");

/// A row that cannot be read, as an index has it.
#[derive(Clone, Debug)]
pub(super) struct Spoilt {
    pub(super) shard: Shard,
    pub(super) id: TaskId,
    pub(super) index: String,
    pub(super) head: Vec<u8>,
    why: String,
}

impl Spoilt {
    pub(super) fn unreadable(self) -> Unreadable {
        Unreadable {
            row: [
                self.id.as_bytes(),
                &self.shard.to_be_bytes()[..],
                self.index.as_bytes(),
            ]
            .concat(),
            id: Some(self.id),
            key: None,
            is_live: codec::is_live(&self.head),
            why: self.why,
            is_away: false,
        }
    }
}

/// Puts rows that cannot be read out of the way for so long, where they were found.
pub(super) async fn set_aside(
    database: &Database,
    rows: &[Unreadable],
    pause: Duration,
) -> Result<(), Error> {
    let mut by_shard = BTreeMap::<Shard, Vec<Misplaced>>::new();
    for row in rows {
        let Some((id, rest)) = row.row.split_first_chunk::<16>() else {
            continue;
        };
        let Some((shard, index)) = rest.split_first_chunk() else {
            continue;
        };
        by_shard
            .entry(Shard::from_be_bytes(*shard))
            .or_default()
            .push(Misplaced {
                index: String::from_utf8_lossy(index).into_owned(),
                id: id.to_vec(),
                head: Vec::new(),
                to: format!("+{}", millis(pause)),
            });
    }
    for (shard, all) in by_shard {
        put_right(database, shard, &all).await?;
    }
    Ok(())
}

/// What scripts give as the head of a row that is not there.
const NO_ROW: &[u8] = b"-";

/// What a member of an index is.
pub(super) enum Member {
    Row(Task, usize),
    Spoilt(Spoilt),
    Misplaced(Misplaced),
}

/// What a member of an index is, found with this score, whose row has this head, and this payload if that is of interest.
pub(super) fn member(
    shard: Shard,
    (by, lane): (By, &str),
    id: Vec<u8>,
    score: String,
    head: Vec<u8>,
    payload: Option<&[u8]>,
) -> Member {
    let index = format!("{}:{lane}", index(by));
    let misplaced = |id, to| {
        Member::Misplaced(Misplaced {
            index: index.clone(),
            id,
            head: head.clone(),
            to,
        })
    };
    let known = answer::id(&id).filter(|_| head != NO_ROW);
    let Some(known) = known else {
        return misplaced(id, String::new());
    };
    let read = codec::lean(known, &head).and_then(|(task, size)| match payload {
        Some(payload) => Ok((codec::task(known, &head, payload)?, size)),
        None => Ok((task, size)),
    });
    let (task, size) = match read {
        Ok(read) => read,
        Err(garbled) => {
            let why = garbled.to_string();
            return Member::Spoilt(Spoilt {
                shard,
                id: known,
                index,
                head,
                why,
            });
        }
    };
    match time(by, &task).filter(|_| codec::lane(task.state, &task.kind) == lane) {
        None => misplaced(id, String::new()),
        // As an index has it.
        Some(time) if score.parse() != Ok(time.as_millis() as f64) => {
            misplaced(id, time.as_millis().to_string())
        }
        Some(_) => Member::Row(task, size),
    }
}

pub(super) fn index(by: By) -> &'static str {
    match by {
        By::Due => "due",
        By::Wake => "wake",
    }
}

pub(super) fn time(by: By, task: &Task) -> Option<Timestamp> {
    match by {
        By::Due => Some(task.due_at),
        By::Wake => task.wake_at,
    }
}

/// Puts members of indexes where they belong: each by its index and lane, its id, the head that its row had, and
/// what score it gets.
pub(super) async fn put_right(database: &Database, shard: Shard, all: &[Misplaced]) -> Result<(), Error> {
    for part in all.chunks(ROWS) {
        let mut call = database.script(&ASIDE, shard);
        for one in part {
            call.arg(&one.index).arg(&one.id).arg(&one.head).arg(&one.to);
        }
        database.write(call).await?;
    }
    Ok(())
}

/// A member of an index that is not where it belongs.
#[derive(Clone, Debug)]
pub(super) struct Misplaced {
    pub(super) index: String,
    pub(super) id: Vec<u8>,
    pub(super) head: Vec<u8>,
    /// As the script takes it.
    pub(super) to: String,
}
