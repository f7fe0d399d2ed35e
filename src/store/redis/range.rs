//! Rows of ranges of the indexes, merged of all shards.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::codec::{self, lane};
use super::database::Database;
use super::listener::believed;
use super::postpone::{index, unreadable};
use super::shards::{Shard, grouped, of_kind};
use crate::redis::{Lua, lua};
use crate::store::Stamped;
use crate::store::table::{By, Columns, Range, Start, Unreadable};
use crate::task::timestamp::millis;
use crate::{Error, Kind, State, Task, TaskId, Timestamp};

static RANGE: Lua = lua!("shard.lua", "index.lua", "range.lua");

/// How many ranges one call reads, and how many kinds of each: as the script has it.
const RANGES: usize = 8;
const KINDS: usize = 64;
/// How many rows a shard is asked for beside its share: they may be spread unevenly.
const SPARE: usize = 16;

/// What was found of a range, in its order: rows, each with how many bytes its payload has.
#[derive(Debug, Default)]
pub(super) struct Merged {
    pub(super) rows: Vec<(Task, usize)>,
    pub(super) unreadable: Vec<Unreadable>,
}

/// The rows of ranges, an answer for each. Where a part will do, what is on servers that do not answer is left out.
pub(super) async fn ranges(
    database: &Database,
    ranges: &[Range],
    columns: Columns,
    a_part_will_do: bool,
) -> Result<Stamped<Vec<Merged>>, Error> {
    let shards = database.shards().await?;
    let mut found: Vec<_> = ranges.iter().map(|_| BTreeMap::<Kind, OfKind>::new()).collect();
    let (mut quiet_at, mut times) = (Vec::new(), Vec::new());
    let mut asks = BTreeMap::new();
    for shard in 0..shards {
        match quiet(database, shards, shard, ranges) {
            Some(now) => quiet_at.push(now),
            None => drop(asks.insert(shard, first_asks(shards, shard, ranges))),
        }
    }
    asks.retain(|_, asks: &mut Vec<Ask>| !asks.is_empty());
    while !asks.is_empty() {
        let calls = asks
            .into_iter()
            .map(|(shard, asks)| ask(database, shard, ranges, asks, columns));
        let answers = join_all(calls).await;
        let answers = match a_part_will_do {
            true => those_that_succeeded(answers)?,
            false => answers.into_iter().collect::<Result<Vec<_>, _>>()?,
        };
        let mut more = Vec::new();
        for (shard, now, answers) in answers {
            times.push(now);
            for (ask, (has_more_kinds, _, kinds)) in answers {
                let range = &ranges[ask.place];
                for (kind, cursor, rows) in kinds {
                    let kind = Kind::from(String::from_utf8_lossy(&kind).into_owned());
                    let of_kind = found[ask.place].entry(kind.clone()).or_default();
                    of_kind.take(shard, range, &kind, cursor, rows, columns);
                }
                if has_more_kinds == 1 {
                    let skip = ask.skip + KINDS;
                    more.push((shard, Ask { skip, ..ask }));
                }
            }
        }
        for (place, (range, kinds)) in ranges.iter().zip(&mut found).enumerate() {
            for (kind, found) in kinds.iter_mut().filter(|(_, found)| !found.cut.is_empty()) {
                more.extend(found.lacking(range).map(|(shard, cursor)| {
                    let ask = Ask {
                        place,
                        kind: Some(kind.clone()),
                        skip: 0,
                        cursor,
                        limit: range.limit,
                    };
                    (shard, ask)
                }));
            }
        }
        asks = grouped(more);
    }
    let now = match times.into_iter().min() {
        Some(now) => now,
        // Where no shard was asked, the time is carried on; but by a server's clock, which may be stepped, leases end.
        None => match (leased(database, ranges), quiet_at.into_iter().max()) {
            (None, Some(now)) => now,
            (shard, _) => database.now_of(shard.unwrap_or(0)).await?,
        },
    };
    let merged = ranges
        .iter()
        .zip(found)
        .map(|(range, kinds)| merged(range, kinds));
    let found = merged.collect();
    Ok(Stamped { now, found })
}

/// The time of a shard's server if it is known to have nothing in these ranges.
fn quiet(database: &Database, shards: u16, shard: Shard, ranges: &[Range]) -> Option<Timestamp> {
    let is_known = database.listener.is_listening() && ranges.iter().all(|range| range.kind.is_none());
    let names: Vec<_> = ranges.iter().map(|range| (index(range), range.within)).collect();
    let indexes = names.iter().map(|(name, within)| (name.as_str(), *within));
    let now = || database.idle.quiet(shard, indexes, believed(shards));
    is_known.then(now).flatten()
}

/// A shard that is known to have leases, if these ranges are of any.
fn leased(database: &Database, ranges: &[Range]) -> Option<Shard> {
    let mut leases = ranges.iter().filter(|range| range.state == State::Running);
    leases.find_map(|range| database.idle.with_row(&index(range)))
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

/// A part of a range that a shard is asked for.
struct Ask {
    /// Of which range.
    place: usize,
    kind: Option<Kind>,
    /// How many kinds are left out.
    skip: usize,
    cursor: Vec<u8>,
    limit: usize,
}

/// What a shard is asked for first: its share of each range that it may have rows of.
fn first_asks(shards: u16, shard: Shard, ranges: &[Range]) -> Vec<Ask> {
    let having = |range: &Range| of_kind(shards, range.kind.as_ref());
    let share = |range: &Range| match having(range).len() {
        1 => range.limit,
        shards => range.limit.min((range.limit / shards).saturating_add(SPARE)),
    };
    let ask = |(place, range): (usize, &Range)| Ask {
        place,
        kind: range.kind.clone(),
        skip: 0,
        cursor: match range.from {
            Start::First | Start::Ago(_) => Vec::new(),
            Start::After(time, id) => [format!("T{}", time.as_millis()).as_bytes(), id.as_bytes()].concat(),
        },
        limit: share(range),
    };
    let here = |(_, range): &(usize, &Range)| having(range).contains(&shard);
    let asks = ranges.iter().enumerate().filter(here).map(ask);
    asks.filter(|ask| ask.limit > 0 && ranges[ask.place].bytes > 0)
        .collect()
}

/// What a script says of a range: whether there are more kinds, the first time of the index, and of each kind what there is.
type Said = (i64, String, Vec<(Vec<u8>, Vec<u8>, Vec<Member>)>);
/// A member of an index: id, score, head and payload of its row.
type Member = (Vec<u8>, String, Vec<u8>, Vec<u8>);

/// Asks a shard; keeps what it says of when it next has something due.
async fn ask(
    database: &Database,
    shard: Shard,
    ranges: &[Range],
    asks: Vec<Ask>,
    columns: Columns,
) -> Result<(Shard, Timestamp, Vec<(Ask, Said)>), Error> {
    let (writes, mut now, mut found) = (database.idle.writes(shard), Timestamp::MAX, Vec::new());
    for part in asks.chunks(RANGES) {
        let mut call = database.script(&RANGE, shard);
        call.arg(u8::from(columns == Columns::All));
        for ask in part {
            let range = &ranges[ask.place];
            let span = |span: Option<_>| span.map_or_else(String::new, |span| millis(span).to_string());
            let since = match range.from {
                Start::Ago(ago) => Some(ago),
                Start::First | Start::After(..) => None,
            };
            let kind = ask.kind.as_ref();
            call.arg(index(range))
                .arg(kind.map_or_else(String::new, |kind| format!("={kind}")))
                .arg(ask.skip)
                .arg(span(since))
                .arg(&ask.cursor)
                .arg(span(range.within))
                .arg(u8::from(range.backwards))
                .arg(ask.limit.min(1 << 30));
        }
        let said = database.read::<Vec<Said>>(shard, call).await?;
        now = now.min(said.now);
        found.extend(said.found);
    }
    let of_every_kind = asks.iter().zip(&found).filter(|(ask, _)| ask.kind.is_none());
    let firsts = of_every_kind.map(|(ask, (_, first, _))| {
        let first = first.parse::<f64>().ok();
        let first = first.map(|first| Timestamp::from_millis(first as i64));
        (index(&ranges[ask.place]), first)
    });
    database.idle.keep(shard, writes, now, firsts);
    Ok((shard, now, asks.into_iter().zip(found).collect()))
}

/// The place of a row in the order of a range.
type Order = (Option<Timestamp>, TaskId);

fn order(range: &Range, task: &Task) -> Order {
    let time = match range.by {
        By::Due => Some(task.due_at),
        By::Wake => task.wake_at,
    };
    (time, task.id)
}

/// What was found of a range and a kind.
#[derive(Default)]
struct OfKind {
    rows: Vec<(Task, usize)>,
    unreadable: Vec<Unreadable>,
    /// The shards that have more, each with a cursor, and its last row so far.
    cut: Vec<(Shard, Vec<u8>, Option<Order>)>,
}

impl OfKind {
    /// Takes what a shard has said.
    fn take(
        &mut self,
        shard: Shard,
        range: &Range,
        kind: &Kind,
        cursor: Vec<u8>,
        rows: Vec<Member>,
        columns: Columns,
    ) {
        let mut last = None;
        for member in rows {
            match row(shard, range, kind, member, columns) {
                Ok(row) => {
                    last = Some(order(range, &row.0));
                    self.rows.push(row);
                }
                Err(unreadable) => self.unreadable.push(unreadable),
            }
        }
        if !cursor.is_empty() {
            self.cut.push((shard, cursor, last));
        }
    }

    fn sort(&mut self, range: &Range) {
        self.rows.sort_by_key(|(task, _)| order(range, task));
        if range.backwards {
            self.rows.reverse();
        }
    }

    /// The shards that have more, and of which it may come before the last row that is wanted.
    fn lacking(&mut self, range: &Range) -> impl Iterator<Item = (Shard, Vec<u8>)> {
        self.sort(range);
        let wanted = range.limit.saturating_sub(self.unreadable.len());
        let edge = wanted.checked_sub(1).and_then(|at| self.rows.get(at));
        let edge = edge.map(|(task, _)| order(range, task));
        let backwards = range.backwards;
        let comes_first = move |last: Option<Order>| match (last, edge) {
            (Some(last), Some(edge)) if backwards => last > edge,
            (Some(last), Some(edge)) => last < edge,
            _ => true,
        };
        let lacking = self.cut.drain(..);
        let lacking = lacking.filter(move |(_, _, last)| wanted > 0 && comes_first(*last));
        lacking.map(|(shard, cursor, _)| (shard, cursor))
    }
}

/// The first rows of each kind, as far as there is room.
fn merged(range: &Range, kinds: BTreeMap<Kind, OfKind>) -> Merged {
    let (mut merged, mut bytes) = (Merged::default(), 0_usize);
    for mut found in kinds.into_values() {
        found.sort(range);
        let fits = |(_, size): &(Task, usize)| {
            let fits = bytes < range.bytes;
            bytes = bytes.saturating_add(*size);
            fits
        };
        let rows = found.rows.into_iter().take(range.limit);
        merged.rows.extend(rows.take_while(fits));
        merged.unreadable.extend(found.unreadable);
    }
    merged
}

/// The row of a member of an index, if it can be read and is where it belongs.
fn row(
    shard: Shard,
    range: &Range,
    kind: &Kind,
    (id, score, head, payload): Member,
    columns: Columns,
) -> Result<(Task, usize), Unreadable> {
    let known = TaskId::from_bytes(id.as_slice().try_into().unwrap_or_default());
    let read = codec::lean(known, &head).and_then(|(task, size)| match columns {
        Columns::All => Ok((codec::task(known, &head, &payload)?, size)),
        Columns::Lean => Ok((task, size)),
    });
    let is_there = |task: &Task| {
        let (time, _) = order(range, task);
        // As an index has it.
        let is_there = time.is_some_and(|time| score.parse() == Ok(time.as_millis() as f64));
        is_there && task.state == range.state && task.kind == *kind && id.len() == 16
    };
    match read {
        Ok((task, size)) if is_there(&task) => Ok((task, size)),
        read => Err(unreadable(
            shard,
            range.by,
            &lane(range.state, kind),
            &id,
            &head,
            read.err(),
        )),
    }
}
