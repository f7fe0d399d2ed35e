//! New rows.

use std::collections::{BTreeMap, HashSet};

use futures_util::stream::{FuturesOrdered, StreamExt};

use super::answer::Items;
use super::codec::{due, maybe};
use super::database::{Database, Request, Told};
use super::moving;
use super::repeat::{Done, Tries};
use super::together::{ON_THE_WAY, together};
use super::{codec, keys};
use crate::redis::{Layout, Lua, Slot, lua};
use crate::store::{NewRow, Stamped, row};
use crate::timestamp::millis;
use crate::{Error, Scheduled, Timestamp, When};

static INSERT: Lua = lua!("row.lua", "entry.lua", "insert.lua");

/// How many rows go into one call, and how many bytes of them: a bound on how long it keeps the server from others.
const ROWS: usize = 50;
const BYTES: usize = 256 << 10;
/// How many rows at a time take the way of keys.
const KEYED: usize = 128;
/// The most that a hash of Redis takes for one row, and a bit less.
const LARGEST: usize = 256 << 20;

/// New rows, each with its place in the batch.
type Placed = Vec<(usize, NewRow)>;
type Answers = Done<(usize, Stamped<Scheduled>), (usize, NewRow)>;

pub(super) async fn insert(database: &Database, rows: Vec<NewRow>) -> Result<Stamped<Vec<Scheduled>>, Error> {
    for row in &rows {
        check(row)?;
    }
    if rows.is_empty() {
        let now = database.now(database.layouts().await?.current).await?;
        return Ok(Stamped {
            now,
            found: Vec::new(),
        });
    }
    let mut answers = Vec::with_capacity(rows.len());
    let mut left: Placed = rows.into_iter().enumerate().collect();
    let mut tries = Tries::default();
    while !left.is_empty() {
        let layouts = database.layouts().await?;
        let ids = left.iter().map(|(_, row)| row.id);
        let names = left.iter();
        let names = names.filter_map(|(_, row)| Some((row.kind.clone(), row.key.clone()?)));
        let layout = match moving::bring(database, layouts, ids, names).await {
            Ok(layout) => layout,
            Err(error) => {
                tries.again(error)?;
                continue;
            }
        };
        let mut rounds = rounds(std::mem::take(&mut left)).into_iter();
        for round in rounds.by_ref() {
            let done = together_in(database, layout, round).await?;
            answers.extend(done.answers);
            left = done.left;
            if let Some(error) = done.closed {
                tries.again(error)?;
                break;
            }
        }
        left.extend(rounds.flatten());
        left.sort_by_key(|(place, _)| *place);
    }
    answers.sort_by_key(|(place, _)| *place);
    let now = answers.iter().map(|(_, answer)| answer.now).min();
    Ok(Stamped {
        now: now.unwrap_or_default(),
        found: answers.into_iter().map(|(_, answer)| answer.found).collect(),
    })
}

/// Refuses what cannot be kept apart from other rows.
fn check(row: &NewRow) -> Result<(), Error> {
    row.kind.check()?;
    if let Some(key) = &row.key {
        key.check()?;
    }
    let texts = row.headers.iter().map(|(name, value)| name.len() + value.len());
    let size = row.payload.len() + texts.sum::<usize>();
    if size > LARGEST {
        return Err(Error::invalid(
            "payload and headers",
            format!("{size} bytes"),
            "allowed are 256 MiB",
        ));
    }
    Ok(())
}

/// Parts of a batch, one after the other, in each of which no row can meet another.
fn rounds(rows: Placed) -> Vec<Placed> {
    let mut left = rows;
    let mut rounds = Vec::new();
    while !left.is_empty() {
        let (mut ids, mut names) = (HashSet::new(), HashSet::new());
        let (mut round, mut later) = (Vec::new(), Vec::new());
        for (place, row) in left {
            let name = row.key.clone().map(|key| (row.kind.clone(), key));
            // What stands behind a row that is left to a later part must not overtake it.
            let is_alone = ids.insert(row.id) & name.is_none_or(|name| names.insert(name));
            if is_alone {
                round.push((place, row));
            } else {
                later.push((place, row));
            }
        }
        rounds.push(round);
        left = later;
    }
    rounds
}

async fn together_in(database: &Database, layout: Layout, rows: Placed) -> Result<Answers, Error> {
    let (mut keyed, mut plain) = (Vec::new(), Placed::new());
    for (place, row) in rows {
        match row.key.clone().filter(|_| layout.slots > 1) {
            Some(key) => keyed.push((place, key, row)),
            None => plain.push((place, row)),
        }
    }
    let calls = by_slot(layout, plain)
        .into_iter()
        .map(|(slot, rows)| in_slot(database, layout, slot, rows));
    let mut done = Answers::new();
    for result in together(calls).await {
        done.add(result?);
    }
    let mut keyed = keyed.into_iter().peekable();
    while keyed.peek().is_some() {
        let calls = keyed.by_ref().take(KEYED).map(|(place, key, row)| async move {
            let mut done = Answers::new();
            match keys::insert(database, layout, &key, &row).await {
                Ok(answer) => done.answers.push((place, answer)),
                Err(error) => return done.closed(error, [(place, row)]),
            }
            Ok(done)
        });
        for result in together(calls).await {
            done.add(result?);
        }
    }
    Ok(done)
}

fn by_slot(layout: Layout, rows: Placed) -> BTreeMap<Slot, Placed> {
    let mut slots = BTreeMap::<Slot, Placed>::new();
    for (place, row) in rows {
        slots.entry(layout.slot(row.id)).or_default().push((place, row));
    }
    slots
}

/// The rows of one slot, of which none can meet another.
async fn in_slot(database: &Database, layout: Layout, slot: Slot, rows: Placed) -> Result<Answers, Error> {
    let mut rows = rows.into_iter().peekable();
    let mut on_the_way = FuturesOrdered::new();
    let mut done = Answers::new();
    loop {
        while on_the_way.len() < ON_THE_WAY && rows.peek().is_some() {
            let mut insert = database.script(&INSERT, slot, Told::Yes, layout);
            let (mut part, mut bytes) = (Vec::new(), 0);
            while let Some((place, row)) = rows.next_if(|_| part.len() < ROWS && bytes < BYTES) {
                bytes += add(&mut insert, &row);
                part.push((place, row));
            }
            on_the_way.push_back(async move { (part, database.write(insert).await) });
        }
        let Some((part, answer)) = on_the_way.next().await else {
            return Ok(done);
        };
        let answer = match answer {
            Ok(answer) => answer,
            Err(error) => {
                done = done.closed(error, part)?;
                continue;
            }
        };
        let now = answer.now;
        let mut items = Items::of(answer.found)?;
        for (place, row) in part {
            let found = said(items.value()?, row, now)?;
            done.answers.push((place, Stamped { now, found }));
        }
    }
}

/// A row as the script takes it; says how long its rest is.
fn add(insert: &mut Request, row: &NewRow) -> usize {
    let rest = codec::rest(&row.payload, &row.headers);
    let (due_in, due_at) = due(row.due);
    insert
        .arg(row.id.as_bytes())
        .arg(row.kind.as_str())
        .arg(row.key.as_ref().map_or("", |key| key.as_str()))
        .arg(due_in)
        .arg(due_at)
        .arg(millis(row.look_in))
        .arg(maybe(row.max_attempts))
        .arg(u8::from(row.replace))
        .arg(&rest);
    rest.len()
}

fn said(value: redis::Value, mut new: NewRow, now: Timestamp) -> Result<Scheduled, Error> {
    if value == redis::Value::Int(0) {
        if let When::At(time) = new.due {
            new.due = When::At(Timestamp::from_millis(codec::stored(time)));
        }
        return Ok(Scheduled::New(row::new(new, now)));
    }
    let mut items = Items::of(value)?;
    let what = items.number()?;
    let id = items.id()?;
    let task = items.task(id)?;
    Ok(match what {
        2 => Scheduled::Replaced(task),
        3 => Scheduled::Running(task),
        _ => Scheduled::Existing(task),
    })
}
