//! Rows by their ids and keys, and what is noted of them.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::answer::{self, Items};
use super::codec;
use super::database::Database;
use super::shards::{Shard, of_id, of_key};
use crate::redis::{Lua, Role, lua};
use crate::store::Stamped;
use crate::store::table::{Columns, Found, Unreadable};
use crate::{Error, Key, Kind, TaskId, Timestamp};

static READ: Lua = lua!("shard.lua", "read.lua");

/// How many rows one call reads.
const ROWS: usize = 128;

/// What is read of rows beside their heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extra {
    Nothing,
    Payloads,
    Notes,
}

/// By what a row is asked for.
#[derive(Clone, Debug)]
pub(super) enum Asked {
    Id(TaskId),
    Key(Kind, Key),
}

/// A row as it is kept.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) shard: Shard,
    pub(super) id: TaskId,
    pub(super) head: Vec<u8>,
    pub(super) rest: Vec<u8>,
}

/// What there is of each that was asked for, or why that is not known; and the earliest time that a server has said.
pub(super) struct Seen {
    pub(super) now: Option<Timestamp>,
    pub(super) rows: Vec<Result<Option<Raw>, Error>>,
}

/// Looks for rows, ids before keys: where they belong, and ids that are not there in all other shards.
pub(super) async fn look_up(database: &Database, asked: &[Asked], extra: Extra) -> Result<Seen, Error> {
    let shards = database.shards().await?;
    let own = |asked: &Asked| match asked {
        Asked::Id(id) => of_id(shards, *id),
        Asked::Key(kind, key) => of_key(shards, kind, key),
    };
    let mut seen = Seen {
        now: None,
        rows: asked.iter().map(|_| Ok(None)).collect(),
    };
    let mut parts = BTreeMap::<Shard, Vec<usize>>::new();
    for (place, asked) in asked.iter().enumerate() {
        parts.entry(own(asked)).or_default().push(place);
    }
    seen.look(database, asked, extra, parts).await;
    let absent = |place: &usize| {
        let is_id = matches!(asked[*place], Asked::Id(_));
        is_id && matches!(seen.rows[*place], Ok(None))
    };
    let absent: Vec<_> = (0..asked.len()).filter(absent).collect();
    if shards > 1 && !absent.is_empty() {
        let others = (0..shards).map(|shard| {
            let others = absent
                .iter()
                .copied()
                .filter(|place| own(&asked[*place]) != shard);
            (shard, others.collect())
        });
        seen.look(database, asked, extra, others.collect()).await;
    }
    Ok(seen)
}

impl Seen {
    async fn look(
        &mut self,
        database: &Database,
        asked: &[Asked],
        extra: Extra,
        parts: BTreeMap<Shard, Vec<usize>>,
    ) {
        let parts = parts.into_iter().filter(|(_, places)| !places.is_empty());
        let looks = parts.map(|(shard, places)| async move {
            let looked = in_shard(database, shard, asked, &places, extra).await;
            (places, looked)
        });
        for (places, looked) in join_all(looks).await {
            match looked {
                Ok(Stamped { now, found }) => {
                    self.now = [self.now, Some(now)].into_iter().flatten().min();
                    for (place, raw) in places.into_iter().zip(found) {
                        if raw.is_some() {
                            self.rows[place] = Ok(raw);
                        }
                    }
                }
                Err(error) => {
                    for place in places {
                        if matches!(self.rows[place], Ok(None)) {
                            self.rows[place] = Err(error.once_more());
                        }
                    }
                }
            }
        }
    }

    /// The rows, those left out that are absent; an error if nothing is known of any.
    pub(super) fn found(self, asked: &[Asked], columns: Columns) -> Result<Stamped<Found>, Error> {
        let mut found = Found::default();
        for (seen, asked) in self.rows.into_iter().zip(asked) {
            let (id, key) = match asked {
                Asked::Id(id) => (Some(*id), None),
                Asked::Key(kind, key) => (None, Some((kind.clone(), key.clone()))),
            };
            match seen {
                Ok(None) => {}
                Ok(Some(raw)) => match raw.task(columns) {
                    Ok(task) => found.rows.push(task),
                    Err(unreadable) => found.unreadable.push(Unreadable { key, ..unreadable }),
                },
                // Of the others it is known.
                Err(error) if self.now.is_some() => found.unreadable.push(Unreadable {
                    row: Vec::new(),
                    id,
                    key,
                    is_live: true,
                    why: error.to_string(),
                    is_away: error.is_transient(),
                }),
                Err(error) => return Err(error),
            }
        }
        let now = self.now.ok_or_else(|| answer::unexpected(&redis::Value::Nil))?;
        Ok(Stamped { now, found })
    }
}

impl Raw {
    fn task(&self, columns: Columns) -> Result<crate::Task, Unreadable> {
        let task = match columns {
            Columns::All => codec::task(self.id, &self.head, &self.rest),
            Columns::Lean => codec::lean(self.id, &self.head).map(|(task, _)| task),
        };
        task.map_err(|garbled| Unreadable {
            row: self.id.as_bytes().to_vec(),
            id: Some(self.id),
            key: None,
            is_live: codec::is_live(&self.head),
            why: garbled.to_string(),
            is_away: false,
        })
    }
}

/// What a shard has of some of those that are asked for.
async fn in_shard(
    database: &Database,
    shard: Shard,
    asked: &[Asked],
    places: &[usize],
    extra: Extra,
) -> Result<Stamped<Vec<Option<Raw>>>, Error> {
    let (mut now, mut found) = (Timestamp::MAX, Vec::with_capacity(places.len()));
    while found.len() < places.len() {
        let part = &places[found.len()..];
        let part = || part.iter().take(ROWS).map(|&place| &asked[place]);
        let mut call = database.script(&READ, shard);
        call.arg(match extra {
            Extra::Nothing => "",
            Extra::Payloads => "payloads",
            Extra::Notes => "notes",
        });
        call.arg(part().filter(|asked| matches!(asked, Asked::Id(_))).count());
        for asked in part() {
            match asked {
                Asked::Id(id) => call.arg(id.as_bytes()),
                Asked::Key(kind, key) => call.arg(codec::name(kind, key)),
            };
        }
        let answer = database.read(call).await?;
        now = now.min(answer.now);
        let mut items = Items::of(answer.found)?;
        if items.is_empty() {
            return Err(Role::Store.error(false, "a script answered nothing"));
        }
        while !items.is_empty() {
            let (id, head, rest) = (items.bytes()?, items.bytes()?, items.bytes()?);
            found.push(answer::id(&id).map(|id| Raw {
                shard,
                id,
                head,
                rest,
            }));
        }
    }
    Ok(Stamped { now, found })
}
