//! Writes rows: new ones, and what has become of those that are there.

use std::collections::{BTreeMap, BTreeSet};

use futures_util::future::join_all;

use super::answer::{Answer, Items, bytes};
use super::codec;
use super::database::{Database, Request};
use super::idle::Sort;
use super::read::{Asked, Extra, look_up};
use super::shards::{Shard, home, may_be_elsewhere};
use crate::redis::{Lua, Role, lua};
use crate::store::table::{Outcome, Write};
use crate::store::{NewRow, Noted, Stamped, When};
use crate::task::timestamp::millis;
use crate::{Error, State, Task, Timestamp};

static INSERT: Lua = lua!("shard.lua", "lanes.lua", "insert.lua");
static WRITE: Lua = lua!("shard.lua", "lanes.lua", "write.lua");

/// How many rows go into one call, and how many bytes: bounds on how long it keeps the server from others.
pub(super) const ROWS: usize = 64;
const BYTES: usize = 256 << 10;
/// The most that a hash of Redis takes for one row, and a bit less.
const LARGEST: usize = 256 << 20;

/// Places of a batch in parts of which each goes into one call.
fn parts(places: &[usize], size: impl Fn(usize) -> usize) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0;
    for &place in places {
        match parts.last_mut() {
            Some(part) if part.len() < ROWS && bytes < BYTES => part.push(place),
            _ => {
                parts.push(vec![place]);
                bytes = 0;
            }
        }
        bytes += size(place);
    }
    parts
}

/// Refuses what cannot be kept apart from other rows.
fn check(row: &NewRow) -> Result<(), Error> {
    row.kind.check()?;
    row.key.as_ref().map_or(Ok(()), |key| key.check())?;
    let size = row.bytes();
    if size > LARGEST {
        let value = format!("{size} bytes");
        return Err(Error::invalid(
            "payload and headers",
            value,
            "allowed are 256 MiB",
        ));
    }
    Ok(())
}

pub(super) async fn insert(database: &Database, rows: &[NewRow]) -> Result<Stamped<Vec<Outcome>>, Error> {
    let shards = database.shards().await?;
    let mut came: Vec<Option<Outcome>> = Vec::with_capacity(rows.len());
    let mut ids = BTreeSet::new();
    for row in rows {
        came.push(match check(row) {
            Err(error) => Some(Outcome::Refused(error)),
            Ok(()) if ids.insert(row.id) => None,
            // Of twins the first counts.
            Ok(()) => Some(Outcome::Lost),
        });
    }
    miss_those_elsewhere(database, shards, rows, &mut came).await?;
    let mut places = BTreeMap::<Shard, Vec<usize>>::new();
    for place in (0..rows.len()).filter(|&place| came[place].is_none()) {
        let row = &rows[place];
        let shard = home(shards, row.id, &row.kind, row.key.as_ref());
        places.entry(shard).or_default().push(place);
    }
    let parts = places.iter().flat_map(|(shard, places)| {
        parts(places, |place| rows[place].bytes())
            .into_iter()
            .map(|part| (*shard, part))
    });
    let mut parts = parts.collect::<Vec<_>>().into_iter();
    let mut failure = None;
    let mut settle = |part: Vec<usize>, said: Result<Inserted, Error>| match said {
        Ok(Inserted { now, digits }) => {
            for (place, digit) in part.into_iter().zip(digits) {
                came[place] = Some(outcome(digit));
            }
            Some(now)
        }
        Err(error) => {
            failure.get_or_insert_with(|| error.once_more());
            for place in part {
                came[place] = Some(Outcome::Refused(error.once_more()));
            }
            None
        }
    };
    // The first that is written says the moment of all.
    let mut now = None;
    for (shard, part) in parts.by_ref() {
        let said = insert_part(database, shards, shard, rows, &part, None).await;
        now = settle(part, said);
        if now.is_some() {
            break;
        }
    }
    let others = parts.map(|(shard, part)| async move {
        let said = insert_part(database, shards, shard, rows, &part, now).await;
        (part, said)
    });
    for (part, said) in join_all(others).await {
        settle(part, said);
    }
    let now = match (now, failure) {
        (Some(now), _) => now,
        (None, Some(error)) => return Err(error),
        (None, None) => database.now().await?,
    };
    let found = came
        .into_iter()
        .map(|came| came.unwrap_or(Outcome::Lost))
        .collect();
    Ok(Stamped { now, found })
}

/// Says of rows whose ids are there, in other shards than they belong to, that they are lost.
async fn miss_those_elsewhere(
    database: &Database,
    shards: u16,
    rows: &[NewRow],
    came: &mut [Option<Outcome>],
) -> Result<(), Error> {
    let may_be = |place: &usize| came[*place].is_none() && may_be_elsewhere(shards, &rows[*place]);
    let places: Vec<_> = (0..rows.len()).filter(may_be).collect();
    if places.is_empty() {
        return Ok(());
    }
    let asked: Vec<_> = places.iter().map(|&place| Asked::Id(rows[place].id)).collect();
    let seen = look_up(database, &asked, Extra::Nothing).await?;
    for (place, seen) in places.into_iter().zip(seen.rows) {
        match seen {
            Ok(None) => {}
            Ok(Some(_)) => came[place] = Some(Outcome::Lost),
            Err(error) => came[place] = Some(Outcome::Refused(error)),
        }
    }
    Ok(())
}

fn outcome(digit: u8) -> Outcome {
    match digit {
        b'1' => Outcome::Written,
        _ => Outcome::Lost,
    }
}

/// What came of a part: when, and of each row a digit.
struct Inserted {
    now: Timestamp,
    digits: Vec<u8>,
}

async fn insert_part(
    database: &Database,
    shards: u16,
    shard: Shard,
    rows: &[NewRow],
    part: &[usize],
    now: Option<Timestamp>,
) -> Result<Inserted, Error> {
    database.keeps(shard).await?;
    let mut call = database.telling(&INSERT, shard, shards);
    call.arg(now.map_or_else(String::new, |now| now.as_millis().to_string()));
    for &place in part {
        add_new(&mut call, &rows[place]);
    }
    let answer = database.write(call).await?;
    let mut items = Items::of(answer.found)?;
    let (wake, due, digits) = (items.time()?, items.time()?, items.bytes()?);
    database.idle.written(shard, Sort::Waking, wake);
    database.idle.written(shard, Sort::Due, due);
    Ok(Inserted {
        now: answer.now,
        digits,
    })
}

fn add_new(call: &mut Request, row: &NewRow) {
    let packed = codec::packed(&row.payload, &row.headers);
    let [middle, rest] = codec::parts(row, packed.len());
    call.arg(row.id.as_bytes())
        .arg(row.kind.as_str())
        .arg(row.key.as_ref().map_or("", |key| key.as_str()));
    match row.due {
        When::After(delay) => call.arg(millis(delay)),
        When::At(time) => {
            let time = time.as_millis();
            call.arg([b"@", &time.to_le_bytes()[..], time.to_string().as_bytes()].concat())
        }
    };
    call.arg(millis(row.look_in)).arg(middle).arg(rest).arg(packed);
    let note = |text: &Option<String>| text.as_deref().unwrap_or_default().to_owned();
    call.arg(note(&row.note.event)).arg(note(&row.note.sent));
}

pub(super) async fn write(database: &Database, writes: &[Write]) -> Result<Vec<Outcome>, Error> {
    if writes.is_empty() {
        return Ok(Vec::new());
    }
    let shards = database.shards().await?;
    // What is new waits where a server is full, and holds up nothing else.
    let mut places = BTreeMap::<(Shard, bool), Vec<usize>>::new();
    for (place, write) in writes.iter().enumerate() {
        let row = &write.row;
        let shard = home(shards, row.id, &row.kind, row.key.as_ref());
        places.entry((shard, write.refill)).or_default().push(place);
    }
    let size = |place: usize| {
        let Write {
            row, refill, noted, ..
        } = &writes[place];
        let error = row.last_error.as_ref().map_or(0, String::len);
        error + noted.history.len() + if *refill { row.payload.len() } else { 0 }
    };
    let calls = places.iter().flat_map(|(&(shard, refills), places)| {
        parts(places, size).into_iter().map(move |part| async move {
            let mut call = call_of(database, shards, shard, !refills);
            let firsts = firsts(&mut call, part.iter().map(|&place| &writes[place].row));
            part.iter()
                .for_each(|&place| add_write(&mut call, &writes[place]));
            let said = digits(database.write_once(call).await);
            for (sort, time) in firsts {
                database.idle.written(shard, sort, time);
            }
            (part, said)
        })
    });
    let mut came: Vec<_> = writes.iter().map(|_| Outcome::Lost).collect();
    for (part, said) in join_all(calls).await {
        match said {
            Ok(digits) => part
                .iter()
                .zip(digits)
                .for_each(|(place, digit)| came[*place] = outcome(digit)),
            Err(error) if part.len() == writes.len() => return Err(error),
            Err(error) => part
                .iter()
                .for_each(|place| came[*place] = Outcome::Refused(error.once_more())),
        }
    }
    Ok(came)
}

/// A call that writes rows, which are to be added.
fn call_of(database: &Database, shards: u16, shard: Shard, passes_though_full: bool) -> Request {
    let mut call = database.telling(&WRITE, shard, shards);
    call.arg(database.token()).arg(u8::from(passes_though_full));
    call
}

fn digits(answer: Result<Answer, Error>) -> Result<Vec<u8>, Error> {
    match bytes(answer?.found)? {
        none if none.is_empty() => {
            Err(Role::Store.error(true, "the answer was lost: what came of it is not known"))
        }
        digits => Ok(digits),
    }
}

/// Adds to a call when what it writes first needs a look; gives that of each sort.
fn firsts<'w>(call: &mut Request, rows: impl Iterator<Item = &'w Task>) -> Vec<(Sort, Timestamp)> {
    let mut firsts: [Option<Timestamp>; 4] = [None; 4];
    let mut first = |sort: Sort, time: Option<Timestamp>| {
        let known = &mut firsts[sort as usize];
        *known = [*known, time].into_iter().flatten().min();
    };
    for row in rows {
        match row.state {
            State::Scheduled => {
                first(Sort::Waking, row.wake_at);
                first(Sort::Due, Some(row.due_at));
            }
            State::Running => first(Sort::Leased, row.wake_at),
            State::Done | State::Cancelled => first(Sort::Over, row.wake_at),
            State::Dead => {}
        }
    }
    for sort in [Sort::Waking, Sort::Due] {
        call.arg(firsts[sort as usize].map_or_else(String::new, |time| time.as_millis().to_string()));
    }
    let sorts = [Sort::Waking, Sort::Leased, Sort::Due, Sort::Over].into_iter();
    sorts
        .filter_map(|sort| Some((sort, firsts[sort as usize]?)))
        .collect()
}

fn add_write(call: &mut Request, write: &Write) {
    let Write {
        before,
        row,
        refill,
        noted,
        ..
    } = write;
    let packed = match refill {
        true => codec::packed(&row.payload, &row.headers),
        false => Vec::new(),
    };
    let wake = write.guards_wake.then_some(before.wake_at);
    let (from, to) = (
        codec::lane(before.state, &row.kind),
        codec::lane(row.state, &row.kind),
    );
    let has_moved = from != to || before.due_at != row.due_at;
    let due = has_moved.then_some(row.due_at);
    let step = match (&row.key, before.state.is_live(), row.state.is_live()) {
        (Some(_), true, false) => "free",
        (Some(_), false, true) => "take",
        _ => "",
    };
    let [start, middle, rest] = codec::head(row, packed.len());
    call.arg(row.id.as_bytes())
        .arg(codec::guard(before.version, wake))
        .arg(start)
        .arg(if *refill { middle } else { Vec::new() })
        .arg(rest)
        .arg(from)
        .arg(to);
    times(call, due, row.wake_at);
    key(call, step, row);
    call.arg(packed);
    note(call, noted);
}

fn times(call: &mut Request, due: Option<Timestamp>, wake: Option<Timestamp>) {
    for time in [due, wake] {
        call.arg(time.map_or_else(String::new, |time| time.as_millis().to_string()));
    }
}

fn key(call: &mut Request, step: &str, row: &Task) {
    call.arg(step);
    match row.key.as_ref().filter(|_| !step.is_empty()) {
        Some(key) => call.arg(codec::name(&row.kind, key)).arg(codec::entry(row)),
        None => call.arg("").arg(""),
    };
}

fn note(call: &mut Request, noted: &Noted) {
    call.arg(&noted.history)
        .arg(noted.sent.as_deref().unwrap_or_default());
}

/// A row that is to be removed, as it was found.
pub(super) struct Past {
    pub(super) shard: Shard,
    pub(super) id: crate::TaskId,
    pub(super) lane: String,
    pub(super) head: Vec<u8>,
    /// None if it cannot be read.
    pub(super) row: Option<Task>,
}

/// Removes rows that are as they were found; says how many.
pub(super) async fn remove(database: &Database, all: Vec<Past>) -> Result<Vec<Result<u64, Error>>, Error> {
    let shards = database.shards().await?;
    let mut by_shard = BTreeMap::<Shard, Vec<Past>>::new();
    for past in all {
        by_shard.entry(past.shard).or_default().push(past);
    }
    let removals = by_shard.iter().flat_map(|(shard, all)| {
        all.chunks(ROWS).map(move |part| async move {
            let mut call = call_of(database, shards, *shard, true);
            call.arg("").arg("");
            for Past {
                id, lane, head, row, ..
            } in part
            {
                let named = row.as_ref().filter(|row| row.key.is_some());
                let guard = row
                    .as_ref()
                    .map_or_else(|| head.clone(), |row| codec::guard(row.version, None));
                call.arg(id.as_bytes())
                    .arg(guard)
                    .arg("")
                    .arg("")
                    .arg("")
                    .arg(lane)
                    .arg("");
                times(&mut call, None, None);
                match named {
                    Some(row) => key(&mut call, "gone", row),
                    None => drop(call.arg("").arg("").arg("")),
                }
                call.arg("");
                note(&mut call, &Noted::default());
            }
            let digits = digits(database.write_once(call).await)?;
            Ok(digits.into_iter().filter(|digit| *digit == b'1').count() as u64)
        })
    });
    Ok(join_all(removals).await)
}
