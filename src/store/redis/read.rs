//! Rows by their ids and keys, and what is noted of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;

use super::codec;
use super::database::Database;
use super::shards::{Shard, grouped, of_id, of_key};
use crate::redis::{Lua, Role, lua};
use crate::store::Stamped;
use crate::store::table::{Columns, Fault, Found, Unreadable};
use crate::{Error, Key, Kind, Task, TaskId, Timestamp};

static READ: Lua = lua!("shard.lua", "read.lua");

/// How many rows one call reads.
const ROWS: usize = 128;

/// What is read of rows beside their heads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Extra {
    Nothing,
    Payloads,
    Notes,
}

/// By what a row is asked for.
#[derive(Clone, Debug)]
pub(super) enum Lookup {
    Id(TaskId),
    Key(Kind, Key),
}

/// A row as it is kept.
#[derive(Debug)]
pub(super) struct Raw {
    pub(super) id: TaskId,
    pub(super) head: Vec<u8>,
    pub(super) rest: Vec<u8>,
}

/// What there is of each that was asked for, or why that is not known; and the earliest time that a server has said.
pub(super) struct Seen {
    pub(super) now: Option<Timestamp>,
    pub(super) rows: Vec<Result<Option<Raw>, Error>>,
}

/// Looks for rows, ids before keys: where they belong, and ids that are not there in all shards. Of each says what is there,
/// or why that is not known; an error if nothing is known of any.
pub(super) async fn look_up(
    database: &Arc<Database>,
    asked: &[Lookup],
    extra: Extra,
) -> Result<Stamped<Vec<Result<Option<Raw>, Error>>>, Error> {
    let shards = database.shards().await?;
    let home = |place: usize| match &asked[place] {
        Lookup::Id(id) => of_id(shards, *id),
        Lookup::Key(kind, key) => of_key(shards, kind, key),
    };
    let mut seen = Seen::nothing_of(asked);
    let homes = grouped((0..asked.len()).map(|place| (home(place), place)));
    seen.look(database, asked, extra, homes).await;
    let absent = (0..asked.len()).filter_map(|place| match (&asked[place], &seen.rows[place]) {
        (Lookup::Id(id), Ok(None)) if shards > 1 => Some((place, *id)),
        _ => None,
    });
    let (absent, ids): (Vec<_>, Vec<_>) = absent.unzip();
    if !ids.is_empty() {
        let elsewhere = database.elsewhere.look(database, ids, extra).await;
        seen.saw(elsewhere.now);
        for (place, row) in absent.into_iter().zip(elsewhere.rows) {
            seen.rows[place] = row;
        }
    }
    let found = seen.rows;
    match (seen.now, found.iter().find_map(|row| row.as_ref().err())) {
        (None, Some(error)) => Err(error.once_more()),
        (None, None) => Ok(Stamped {
            now: database.now().await?,
            found,
        }),
        (Some(now), _) => Ok(Stamped { now, found }),
    }
}

impl Seen {
    pub(super) fn nothing_of(asked: &[Lookup]) -> Self {
        Self {
            now: None,
            rows: asked.iter().map(|_| Ok(None)).collect(),
        }
    }

    fn saw(&mut self, now: Option<Timestamp>) {
        self.now = self.now.into_iter().chain(now).min();
    }

    /// Looks in shards, for those of `asked` that are at these places.
    pub(super) async fn look(
        &mut self,
        database: &Database,
        asked: &[Lookup],
        extra: Extra,
        shards: BTreeMap<Shard, Vec<usize>>,
    ) {
        let looks = shards.into_iter().map(|(shard, places)| async move {
            let looked = in_shard(database, shard, asked, &places, extra).await;
            (places, looked)
        });
        for (places, looked) in join_all(looks).await {
            self.saw(looked.as_ref().ok().map(|looked| looked.now));
            let rows: Vec<_> = match looked {
                Ok(looked) => looked.found.into_iter().map(Ok).collect(),
                Err(error) => places.iter().map(|_| Err(error.once_more())).collect(),
            };
            for (place, row) in places.into_iter().zip(rows) {
                // What one shard has counts, whatever the others say.
                if matches!(row, Ok(Some(_))) || matches!(self.rows[place], Ok(None)) {
                    self.rows[place] = row;
                }
            }
        }
    }
}

/// The rows, those left out that are absent.
pub(super) async fn read(
    database: &Arc<Database>,
    asked: &[Lookup],
    columns: Columns,
) -> Result<Stamped<Found>, Error> {
    let extra = match columns {
        Columns::All => Extra::Payloads,
        Columns::Lean => Extra::Nothing,
    };
    let Stamped { now, found: seen } = look_up(database, asked, extra).await?;
    let mut found = Found::default();
    for (seen, asked) in seen.into_iter().zip(asked) {
        let (mut id, key) = match asked {
            Lookup::Id(id) => (Some(*id), None),
            Lookup::Key(kind, key) => (None, Some((kind.clone(), key.clone()))),
        };
        let (is_live, why, fault) = match seen {
            Ok(None) => continue,
            Ok(Some(raw)) => match decoded(&raw, columns) {
                Ok(task) => {
                    found.rows.push(task);
                    continue;
                }
                Err(why) => {
                    id = Some(raw.id);
                    (codec::is_live(&raw.head), why.to_string(), Fault::Row)
                }
            },
            Err(error) => {
                let transient = error.is_transient();
                (true, error.to_string(), Fault::Server { transient })
            }
        };
        found.unreadable.push(Unreadable {
            row: id.map_or_else(Vec::new, |id| id.as_bytes().to_vec()),
            id,
            key,
            is_live,
            why,
            fault,
        });
    }
    Ok(Stamped { now, found })
}

fn decoded(raw: &Raw, columns: Columns) -> Result<Task, codec::Corrupt> {
    match columns {
        Columns::All => codec::task(raw.id, &raw.head, &raw.rest),
        Columns::Lean => codec::lean(raw.id, &raw.head).map(|(task, _)| task),
    }
}

/// What a shard has of some of those that are asked for.
async fn in_shard(
    database: &Database,
    shard: Shard,
    asked: &[Lookup],
    places: &[usize],
    extra: Extra,
) -> Result<Stamped<Vec<Option<Raw>>>, Error> {
    let (mut now, mut found) = (Timestamp::MAX, Vec::with_capacity(places.len()));
    while let left @ [_, ..] = &places[found.len()..] {
        let part: Vec<_> = left.iter().take(ROWS).map(|&place| &asked[place]).collect();
        let mut call = database.script(&READ, shard);
        call.arg(match extra {
            Extra::Nothing => "",
            Extra::Payloads => "payloads",
            Extra::Notes => "notes",
        });
        call.arg(part.iter().filter(|asked| matches!(asked, Lookup::Id(_))).count());
        for asked in part {
            match asked {
                Lookup::Id(id) => call.arg(id.as_bytes()),
                Lookup::Key(kind, key) => call.arg(codec::name(kind, key)),
            };
        }
        let said = database
            .read::<Vec<(Vec<u8>, Vec<u8>, Vec<u8>)>>(shard, call)
            .await?;
        now = now.min(said.now);
        if said.found.is_empty() {
            return Err(Role::Store.error(false, "a script answered nothing"));
        }
        found.extend(said.found.into_iter().map(|(id, head, rest)| {
            let id = id.try_into().ok().map(TaskId::from_bytes)?;
            Some(Raw { id, head, rest })
        }));
    }
    Ok(Stamped { now, found })
}
