//! Writes what has become of rows, and removes them.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::codec::{self, lane};
use super::database::Database;
use super::postpone::location;
use super::range::{ranges, those_that_succeeded};
use super::shards::{Shard, grouped, home_of};
use crate::redis::{Call, Lua, lua};
use crate::store::table::{Columns, Outcome, Range, Write};
use crate::{Error, Kind, State, Task, Timestamp};

static WRITE: Lua = lua!("shard.lua", "index.lua", "write.lua");

/// How many rows go into one call, and how many bytes: bounds on how long it keeps the server from others.
const ROWS: usize = 64;
const BYTES: usize = 256 << 10;

/// Places of a batch, each with its shard or what else it is not mixed with others of, in parts of which each goes into one call.
pub(super) fn parts<S: Ord + Copy>(
    places: impl Iterator<Item = (S, usize)>,
    size: impl Fn(usize) -> usize,
) -> Vec<(S, Vec<usize>)> {
    let mut parts: Vec<(S, Vec<usize>)> = Vec::new();
    let mut bytes = 0;
    for (shard, places) in grouped(places) {
        for place in places {
            match parts.last_mut() {
                Some((of, part)) if *of == shard && part.len() < ROWS && bytes < BYTES => part.push(place),
                _ => {
                    parts.push((shard, vec![place]));
                    bytes = 0;
                }
            }
            bytes += size(place);
        }
    }
    parts
}

/// What a digit of a script says of a row.
pub(super) fn outcome(digit: Option<&u8>) -> Outcome {
    match digit {
        Some(b'1') => Outcome::Written,
        _ => Outcome::Lost,
    }
}

pub(super) async fn write(database: &Database, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
    if writes.is_empty() {
        return Ok(Vec::new());
    }
    let shards = database.shards().await?;
    let size = |place: usize| {
        let Write {
            row, refill, noted, ..
        } = &writes[place];
        let error = row.last_error.as_ref().map_or(0, String::len);
        error + noted.history.len() + if *refill { row.payload.len() } else { 0 }
    };
    // What is new waits where a server is full, and holds up nothing else.
    let places = writes
        .iter()
        .map(|write| (home_of(shards, &write.row), write.refill));
    let parts = parts(places.zip(0..), size);
    let calls = parts.into_iter().map(|((shard, refills), part)| async move {
        let rows = part.iter().map(|&place| &writes[place].row);
        let mut call = call_of(database, shards, shard, !refills, first_of(rows));
        part.iter().for_each(|&place| add(&mut call, &writes[place]));
        (part, database.write::<Vec<u8>>(shard, call).await)
    });
    let mut came: Vec<_> = writes.iter().map(|_| Outcome::Lost).collect();
    for (part, said) in join_all(calls).await {
        match said {
            Err(error) if part.len() == writes.len() => return Err(error),
            Err(error) => part
                .iter()
                .for_each(|&place| came[place] = Outcome::Refused(error.once_more())),
            Ok(said) => part
                .iter()
                .enumerate()
                .for_each(|(at, &place)| came[place] = outcome(said.found.get(at))),
        }
    }
    Ok(came)
}

/// A call that writes rows, which are to be added.
fn call_of(
    database: &Database,
    shards: u16,
    shard: Shard,
    passes_though_full: bool,
    first: Option<Timestamp>,
) -> Call {
    let mut call = database.publishing(&WRITE, shard, shards);
    // Where its answer is lost, it is not known what came of it.
    call.once();
    call.arg(database.token())
        .arg(u8::from(passes_though_full))
        .arg(millis_of(first));
    call
}

/// When the first of rows is due or wakes.
fn first_of<'w>(rows: impl Iterator<Item = &'w Task>) -> Option<Timestamp> {
    let scheduled = rows.filter(|row| row.state == State::Scheduled);
    scheduled
        .map(|row| row.wake_at.map_or(row.due_at, |wake_at| wake_at.min(row.due_at)))
        .min()
}

fn millis_of(time: Option<Timestamp>) -> String {
    time.map_or_else(String::new, |time| time.as_millis().to_string())
}

fn add(call: &mut Call, write: &Write) {
    let Write {
        before, row, noted, ..
    } = write;
    let [from, to] = [before, row].map(|row| lane(row.state, &row.kind));
    let has_moved = from != to || before.due_at != row.due_at;
    let changes_life = before.state.is_live() != row.state.is_live();
    call.arg(row.id.as_bytes())
        .arg(codec::guard(
            before.version,
            write.guards_wake.then_some(before.wake_at),
        ))
        .arg(codec::head(row));
    match write.refill {
        true => call.arg([b"=", &*codec::packed(&row.payload, &row.headers)].concat()),
        false => call.arg(""),
    };
    call.arg(from)
        .arg(to)
        .arg(millis_of(has_moved.then_some(row.due_at)))
        .arg(millis_of(row.wake_at));
    add_key(call, changes_life.then_some(row));
    call.arg(&noted.history);
}

/// Adds the name of the key of a row, and the entry that the row has among those of its key.
fn add_key(call: &mut Call, row: Option<&Task>) {
    match row.and_then(|row| Some((row, row.key.as_ref()?))) {
        Some((row, key)) => {
            let name = codec::name(&row.kind, key);
            let entry = codec::entry(row, &name);
            call.arg(name).arg(entry)
        }
        None => call.arg(&["", ""]),
    };
}

/// A row that is to be removed: its id and state and kind, as an index has it, and the row itself if it can be decoded.
type Past = (Vec<u8>, String, Option<Task>);

/// Removes rows in these states whose `wake_at` has passed, up to `limit` of each kind; says how many.
pub(super) async fn remove(database: &Database, states: &[State], limit: usize) -> Result<u64, Error> {
    let past: Vec<_> = states.iter().map(|state| Range::overdue(*state, limit)).collect();
    let found = ranges(database, &past, Columns::Lean, true).await?.found;
    let shards = database.shards().await?;
    let (mut left, mut removed) = (BTreeMap::<Kind, usize>::new(), Vec::<(Shard, Past)>::new());
    for merged in found {
        for (row, _) in merged.rows {
            let left = left.entry(row.kind.clone()).or_insert(limit);
            if *left > 0 {
                *left -= 1;
                let (id, lane) = (row.id.as_bytes().to_vec(), lane(row.state, &row.kind));
                removed.push((home_of(shards, &row), (id, lane, Some(row))));
            }
        }
        removed.extend(
            merged
                .unreadable
                .iter()
                .filter_map(location)
                .map(|(shard, (index, id))| {
                    let lane = index.trim_start_matches("wake:");
                    (shard, (id.to_vec(), lane.to_owned(), None))
                }),
        );
    }
    let removed = grouped(removed);
    let calls = removed.iter().flat_map(|(&shard, rows)| {
        rows.chunks(ROWS).map(move |part| async move {
            let mut call = call_of(database, shards, shard, true, None);
            for (id, lane, row) in part {
                let guard = row.as_ref().map(|row| codec::guard(row.version, None));
                call.arg(id).arg(guard.unwrap_or_default());
                call.arg(&["", ""]).arg(lane).arg(&["", "", ""]);
                add_key(&mut call, row.as_ref());
                call.arg("");
            }
            let digits = database.write::<Vec<u8>>(shard, call).await?.found;
            Ok(digits.iter().filter(|&&digit| digit == b'1').count() as u64)
        })
    });
    Ok(those_that_succeeded(join_all(calls).await)?.into_iter().sum())
}
