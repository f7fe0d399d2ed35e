//! Changes of rows, for their callers.

use std::time::Duration;

use redis::Value;

use super::answer::Items;
use super::codec::{self, due};
use super::database::{Database, Request};
use super::parts::{Asking, Found};
use super::shards::{Shard, of_id, of_key};
use crate::redis::{Lua, lua};
use crate::store::merging::Answers;
use crate::store::{Change, Expect, Note, Stamped, Target, Verb, When};
use crate::timestamp::millis;
use crate::{Answer, Error, Timestamp};

static CHANGE: Lua = lua!("row.lua", "passes.lua", "order.lua", "keys.lua", "change.lua");

/// How many numbers there are: what a row has room for, and a pointer.
const NUMBERS: u64 = (1 << 48) - 1;

pub(super) async fn change(
    database: &Database,
    changes: Vec<Change>,
    history: Duration,
) -> Result<Answers<Answer>, Error> {
    let shards = database.shards().await?;
    let asking = Asking {
        database,
        call: &|shard, changes: &[&Change]| {
            let mut call = database.script(&CHANGE, shard, shards, true);
            call.arg(millis(history));
            for change in changes {
                add(&mut call, change);
                call.arg(number(database));
            }
            call
        },
        reads: false,
        size: |_| 0,
        read: &|_, _, said, _| answer(said),
    };
    let mut found = Found::none();
    // An id and a key may mean the same row, by ways of different length: so those of each are one after the other.
    for alike in changes.chunk_by(|one, other| is_by_id(one) == is_by_id(other)) {
        let asked = asking.ask(alike, |change| shard_of(shards, &change.target)).await;
        found.add(asked);
    }
    let (now, found) = found.answered()?;
    let now = match now {
        Some(now) => now,
        None => database.now().await?,
    };
    Ok(Stamped { now, found })
}

/// A number for a change, by which its row knows it where it is asked for once more because its answer was lost; or for
/// the try of an insert, by which a pointer and its row know each other.
pub(super) fn number(database: &Database) -> u64 {
    1 + database.clock.random_below(NUMBERS)
}

fn is_by_id(change: &Change) -> bool {
    matches!(change.target, Target::Id(_))
}

/// The shard of a row, unless its id points elsewhere.
pub(super) fn shard_of(shards: u16, target: &Target) -> Shard {
    match target {
        Target::Id(id) => of_id(shards, *id),
        Target::Key(kind, key) => of_key(shards, kind, key),
    }
}

/// A target as scripts take it.
pub(super) fn name(call: &mut Request, target: &Target) {
    match target {
        Target::Id(id) => call.arg(id.as_bytes()).arg("").arg(""),
        Target::Key(kind, key) => call.arg("").arg(kind.as_str()).arg(key.as_str()),
    };
}

fn add(call: &mut Request, change: &Change) {
    name(call, &change.target);
    let never = When::At(Timestamp::default());
    let (verb, when, look_in) = match change.verb {
        Verb::Reschedule { due, look_in } => (0, due, millis(look_in)),
        Verb::RunNow { look_in } => (1, never, millis(look_in)),
        Verb::Cancel => (2, never, 0),
        Verb::Redrive { look_in } => (3, never, millis(look_in)),
        Verb::Dismiss => (4, never, 0),
    };
    let (due_in, due_at) = due(when);
    let (expect, expected) = match change.expect {
        Expect::Anything => (0, String::new()),
        Expect::Version(version) => (1, version.to_string()),
        Expect::Due(due_at) => (2, codec::stored(due_at).to_string()),
    };
    call.arg(verb)
        .arg(due_in)
        .arg(due_at)
        .arg(look_in)
        .arg(expect)
        .arg(expected);
    note(call, &change.note);
}

/// What is noted of a transition, as scripts take it.
pub(super) fn note(call: &mut Request, note: &Note) {
    call.arg(note.event.as_deref().unwrap_or_default())
        .arg(note.sent.as_deref().unwrap_or_default());
}

fn answer(said: Value) -> Result<Answer, Error> {
    if said == Value::Int(4) {
        return Ok(Answer::NotFound);
    }
    let mut items = Items::of(said)?;
    let what = items.number()?;
    let id = items.id()?;
    let task = items.task(id)?;
    Ok(match what {
        0 => Answer::Done(task),
        1 => Answer::TooLate(task),
        3 => Answer::Conflict(task),
        _ => Answer::Finished(task),
    })
}
