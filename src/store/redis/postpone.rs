//! Sets rows aside that cannot be decoded: moves their ids on in the index that found them, so that it finds what is behind
//! them. The same for an id that an index has though its row is of another state or kind.

use std::time::Duration;

use super::codec::{self, Corrupt};
use super::database::Database;
use super::shards::{Shard, grouped};
use crate::redis::{Lua, lua};
use crate::store::state_code;
use crate::store::table::{By, Fault, Range, Unreadable};
use crate::task::timestamp::millis;
use crate::{Error, TaskId};

static POSTPONE: Lua = lua!("shard.lua", "index.lua", "postpone.lua");

fn by(by: By) -> &'static str {
    match by {
        By::Due => "due",
        By::Wake => "wake",
    }
}

/// The name of the index of a range, but for its kind.
pub(super) fn index(range: &Range) -> String {
    format!("{}:{}", by(range.by), state_code::of(range.state))
}

/// Tells of a member of an index: why its row cannot be decoded, or nothing where it is elsewhere by what it says.
pub(super) fn unreadable(
    shard: Shard,
    of: By,
    lane: &str,
    id: &[u8],
    head: &[u8],
    why: Option<Corrupt>,
) -> Unreadable {
    let index = format!("{}:{lane}", by(of));
    let elsewhere = || format!("it is not as the index {index} says");
    Unreadable {
        row: [id, format!("\0{shard} {index}").as_bytes()].concat(),
        id: id.try_into().ok().map(TaskId::from_bytes),
        key: None,
        is_live: codec::is_live(head),
        why: why.map_or_else(elsewhere, |why| why.to_string()),
        fault: Fault::Row,
    }
}

/// The shard of a member of an index, the index and the id.
pub(super) fn location(unreadable: &Unreadable) -> Option<(Shard, (&str, &[u8]))> {
    let row = &unreadable.row;
    let at = row.iter().rposition(|byte| *byte == 0)?;
    let (shard, index) = str::from_utf8(&row[at + 1..]).ok()?.split_once(' ')?;
    Some((shard.parse().ok()?, (index, &row[..at])))
}

/// Puts rows out of the way for so long, where they were found.
pub(super) async fn postpone(database: &Database, rows: &[Unreadable], pause: Duration) -> Result<(), Error> {
    for (shard, rows) in grouped(rows.iter().filter_map(location)) {
        for part in rows.chunks(64) {
            let mut call = database.script(&POSTPONE, shard);
            call.arg(millis(pause));
            for (index, id) in part {
                let (by, lane) = index.split_once(':').unwrap_or_default();
                call.arg(lane).arg(by).arg(*id);
            }
            database.write_unconfirmed::<redis::Value>(shard, call).await?;
        }
    }
    Ok(())
}
