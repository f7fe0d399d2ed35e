//! Rows of ranges of the indexes, merged of all shards.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::answer::{self, Items};
use super::codec::{digit, lane};
use super::database::Database;
use super::idle::Firsts;
use super::listen::believed;
use super::shards::Shard;
use super::strays::{Member, Misplaced, Spoilt, index, member, put_right, time};
use crate::redis::{Lua, lua};
use crate::store::Stamped;
use crate::store::table::{Columns, Range, Start};
use crate::task::timestamp::millis;
use crate::{Error, Kind, Task, TaskId, Timestamp};

static RANGE: Lua = lua!("shard.lua", "range.lua");

/// How many ranges one call reads, and how many kinds of each: as the script has it.
const RANGES: usize = 8;
const LANES: usize = 64;
/// How many rows a shard is asked for beside its share: they may be spread unevenly.
const SPARE: usize = 16;
/// How often a shard is asked anew of which members of indexes were put right.
const TRIES: usize = 4;

/// A row that was found.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) shard: Shard,
    pub(super) task: Task,
    /// How many bytes its payload has.
    pub(super) size: usize,
}

/// What was found of a range, in its order.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) rows: Vec<Placed>,
    pub(super) spoilt: Vec<Spoilt>,
}

/// The rows of ranges, an answer for each. Where a part will do, what is on servers that do not answer is left out.
pub(super) async fn ranges(
    database: &Database,
    ranges: &[Range],
    columns: Columns,
    a_part_will_do: bool,
) -> Result<Stamped<Vec<Merged>>, Error> {
    let shards = database.shards().await?;
    let share = |limit: usize| limit.min((limit / usize::from(shards.max(1))).saturating_add(SPARE));
    let is_listening = database.listener.is_listening();
    let scan = |shard, is_second: bool| async move {
        if is_listening && !is_second && database.idle.has_none(shard, ranges, believed(shards)) {
            let lanes = ranges.iter().map(|_| BTreeMap::new()).collect();
            return Ok(Scan {
                shard,
                now: None,
                lanes,
            });
        }
        let is_whole = is_second || shards == 1;
        let limits = ranges
            .iter()
            .map(|range| if is_whole { range.limit } else { share(range.limit) });
        scan(database, shard, ranges, &limits.collect::<Vec<_>>(), columns).await
    };
    let all = join_all((0..shards).map(|shard| scan(shard, false))).await;
    let mut scans = match a_part_will_do {
        true => those_that_succeeded(all)?,
        false => all.into_iter().collect::<Result<Vec<_>, _>>()?,
    };
    // A shard that has more than its share is asked for the rest, unless others have what comes first.
    let lacking: Vec<_> = scans
        .iter()
        .filter(|scan| scan.lacks(&scans, ranges))
        .map(|scan| scan.shard)
        .collect();
    for whole in those_that_succeeded(join_all(lacking.into_iter().map(|shard| scan(shard, true))).await)? {
        scans.retain(|scan| scan.shard != whole.shard);
        scans.push(whole);
    }
    let now = scans
        .iter()
        .filter_map(|scan| scan.now)
        .min()
        .or_else(|| database.idle.now());
    let now = now.ok_or_else(|| answer::unexpected(&redis::Value::Nil))?;
    let found = merged(scans, ranges);
    Ok(Stamped { now, found })
}

/// What calls have given where one that failed must not spoil the others: an error only if all have failed.
pub(super) fn those_that_succeeded<T>(results: Vec<Result<T, Error>>) -> Result<Vec<T>, Error> {
    let has_success = results.iter().any(Result::is_ok);
    let mut given = Vec::with_capacity(results.len());
    for result in results {
        match result {
            Ok(one) => given.push(one),
            Err(error) if has_success => tracing::warn!(
                %error,
                "a part of the tasks is on a Redis server that does not answer; they wait until it does, and the others go on"
            ),
            Err(error) => return Err(error),
        }
    }
    Ok(given)
}

/// What a shard has of each range, by kind.
struct Scan {
    shard: Shard,
    /// The time of its server, if that was asked.
    now: Option<Timestamp>,
    lanes: Vec<BTreeMap<Kind, Found>>,
}

#[derive(Default)]
struct Found {
    rows: Vec<Placed>,
    spoilt: Vec<Spoilt>,
    /// Whether there may be more.
    is_cut: bool,
}

impl Found {
    fn last(&self, range: &Range) -> Option<Order> {
        self.rows.last().map(|row| order(range, row))
    }
}

/// The place of a row in the order of a range.
type Order = (Option<Timestamp>, TaskId);

fn order(range: &Range, row: &Placed) -> Order {
    (time(range.by, &row.task), row.task.id)
}

impl Scan {
    /// Whether rows may be missing that it has more of.
    fn lacks(&self, all: &[Self], ranges: &[Range]) -> bool {
        let lacks = |place: usize, kind: &Kind, found: &Found| {
            let range = &ranges[place];
            let Some(last) = found.last(range).filter(|_| found.is_cut) else {
                return found.is_cut;
            };
            let others = all.iter().filter_map(|scan| scan.lanes[place].get(kind));
            let comes_first = |row: &&Placed| match range.backwards {
                true => order(range, row) >= last,
                false => order(range, row) <= last,
            };
            let first = others.flat_map(|found| &found.rows).filter(comes_first);
            first.count() < range.limit
        };
        let lanes = self.lanes.iter().enumerate();
        lanes
            .into_iter()
            .any(|(place, lanes)| lanes.iter().any(|(kind, found)| lacks(place, kind, found)))
    }
}

fn merged(scans: Vec<Scan>, ranges: &[Range]) -> Vec<Merged> {
    let mut kinds: Vec<BTreeMap<Kind, Found>> = ranges.iter().map(|_| BTreeMap::new()).collect();
    for scan in scans {
        for (place, lanes) in scan.lanes.into_iter().enumerate() {
            for (kind, found) in lanes {
                let all = kinds[place].entry(kind).or_default();
                all.rows.extend(found.rows);
                all.spoilt.extend(found.spoilt);
            }
        }
    }
    let merge = |(range, kinds): (&Range, BTreeMap<Kind, Found>)| {
        let (mut merged, mut bytes) = (Merged::default(), 0_usize);
        for (_, mut found) in kinds {
            found.rows.sort_by_key(|row| order(range, row));
            if range.backwards {
                found.rows.reverse();
            }
            let fits = |row: &Placed| {
                let fits = bytes < range.bytes;
                bytes = bytes.saturating_add(row.size);
                fits
            };
            merged
                .rows
                .extend(found.rows.into_iter().take(range.limit).take_while(fits));
            merged.spoilt.extend(found.spoilt);
        }
        merged
    };
    ranges.iter().zip(kinds).map(merge).collect()
}

/// A part of a range that a script is asked for.
#[derive(Clone)]
struct Ask {
    place: usize,
    kind: Option<Kind>,
    skip: usize,
    from: String,
    after: Vec<u8>,
    left: usize,
    had: usize,
}

async fn scan(
    database: &Database,
    shard: Shard,
    ranges: &[Range],
    limits: &[usize],
    columns: Columns,
) -> Result<Scan, Error> {
    let mut tries = 0;
    loop {
        let (found, misplaced) = scan_once(database, shard, ranges, limits, columns).await?;
        tries += 1;
        if misplaced.is_empty() || tries == TRIES {
            return Ok(found);
        }
        put_right(database, shard, &misplaced).await?;
    }
}

async fn scan_once(
    database: &Database,
    shard: Shard,
    ranges: &[Range],
    limits: &[usize],
    columns: Columns,
) -> Result<(Scan, Vec<Misplaced>), Error> {
    let since = database.idle.looking(shard);
    let says_firsts = ranges.iter().any(|range| range.kind.is_none());
    let first = |(place, range): (usize, &Range)| {
        let (from, after) = match range.from {
            Start::First => (String::new(), Vec::new()),
            Start::Ago(ago) => (format!("A{}", millis(ago)), Vec::new()),
            Start::After(time, id) => (format!("T{}", time.as_millis()), id.as_bytes().to_vec()),
        };
        let (kind, left) = (range.kind.clone(), limits[place]);
        Ask {
            place,
            kind,
            skip: 0,
            from,
            after,
            left,
            had: 0,
        }
    };
    let mut asks: Vec<_> = ranges.iter().enumerate().map(first).collect();
    asks.retain(|ask| ask.left > 0 && ranges[ask.place].bytes > 0);
    let (mut misplaced, mut now) = (Vec::new(), None);
    let mut lanes: Vec<BTreeMap<Kind, Found>> = ranges.iter().map(|_| BTreeMap::new()).collect();
    let mut bytes = vec![0_usize; ranges.len()];
    let mut is_first = true;
    while is_first || !asks.is_empty() {
        let part: Vec<_> = asks.drain(..asks.len().min(RANGES)).collect();
        let mut call = database.script(&RANGE, shard);
        call.arg(u8::from(columns == Columns::All))
            .arg(u8::from(is_first && says_firsts));
        for ask in &part {
            let range = &ranges[ask.place];
            call.arg(index(range.by))
                .arg(digit(range.state))
                .arg(
                    ask.kind
                        .as_ref()
                        .map_or_else(String::new, |kind| format!("={kind}")),
                )
                .arg(ask.skip)
                .arg(&ask.from)
                .arg(&ask.after)
                .arg(
                    range
                        .within
                        .map_or_else(String::new, |within| millis(within).to_string()),
                )
                .arg(u8::from(range.backwards))
                .arg(ask.left.min(1 << 30));
        }
        let answer = database.read(call).await?;
        let now = now.get_or_insert(answer.now);
        *now = answer.now.min(*now);
        let mut items = Items::of(answer.found)?;
        for ask in part {
            let range = &ranges[ask.place];
            let mut said = items.items()?;
            if said.number()? == 1 {
                asks.push(Ask {
                    skip: ask.skip + LANES,
                    ..ask.clone()
                });
            }
            while !said.is_empty() {
                let mut given = said.items()?;
                let (kind, has_more) = (Kind::from(given.text()?), given.number()? == 1);
                let lane = lane(range.state, &kind);
                let found = lanes[ask.place].entry(kind.clone()).or_default();
                let (mut count, mut from, mut after) = (0, ask.from.clone(), ask.after.clone());
                while !given.is_empty() {
                    let (id, score, head, payload) =
                        (given.bytes()?, given.text()?, given.bytes()?, given.bytes()?);
                    (from, after) = (format!("T{score}"), id.clone());
                    count += 1;
                    let payload = (columns == Columns::All).then_some(&*payload);
                    match member(shard, (range.by, &lane), id, score, head, payload) {
                        Member::Row(task, size) => {
                            bytes[ask.place] = bytes[ask.place].saturating_add(size);
                            found.rows.push(Placed { shard, task, size });
                        }
                        Member::Spoilt(spoilt) => found.spoilt.push(spoilt),
                        Member::Misplaced(one) => misplaced.push(one),
                    }
                }
                let (left, had) = (ask.left - count.min(ask.left), ask.had + count);
                let is_full = bytes[ask.place] >= range.bytes;
                found.is_cut = left == 0 || is_full;
                if range.backwards {
                    (from, after) = (format!("O{had}"), Vec::new());
                }
                if has_more && left > 0 && !is_full {
                    asks.push(Ask {
                        place: ask.place,
                        kind: Some(kind),
                        skip: 0,
                        from,
                        after,
                        left,
                        had,
                    });
                }
            }
        }
        if is_first && says_firsts {
            let mut said = items.items()?;
            let mut firsts: Firsts = [None; 4];
            for first in &mut firsts {
                *first = Some(said.time()?).filter(|time| time.as_millis() >= 0);
            }
            database.idle.looked(shard, since, firsts);
        }
        is_first = false;
    }
    Ok((Scan { shard, now, lanes }, misplaced))
}
