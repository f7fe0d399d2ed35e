//! What only looks: the server, rows, kinds.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use redis::Value;

use super::answer::{Items, bytes};
use super::change::{name, shard_of};
use super::codec::{self, lane};
use super::database::Database;
use super::look::Place;
use super::parts::Asking;
use super::shards::of_id;
use crate::redis::{Lua, lua};
use crate::store::{Noted, Page, Stamped, Target};
use crate::timestamp::millis;
use crate::{Error, Kind, State, Task, TaskId, Timestamp};

static FIND: Lua = lua!("row.lua", "order.lua", "keys.lua", "find.lua");
static NOTED: Lua = lua!("row.lua", "noted.lua");
static LIST: Lua = lua!("row.lua", "order.lua", "list.lua");
static KINDS: Lua = lua!("row.lua", "kinds.lua");
static DUE_WITHIN: Lua = lua!("row.lua", "due_within.lua");

/// How many rows one call lists, and how many kinds.
const ROWS: usize = 100;
const MOST_KINDS: usize = 1_000;

/// Fails unless every shard can be asked, on a server that keeps what it is given.
pub(super) async fn check(database: &Database) -> Result<(), Error> {
    let shards = database.shards_now().await?;
    let calls = (0..shards).map(|shard| database.ask_fitness(shard, shards));
    join_all(calls).await.into_iter().collect()
}

pub(super) async fn find(database: &Database, target: &Target) -> Result<Option<Task>, Error> {
    let shards = database.shards().await?;
    let asking = Asking {
        database,
        call: &|shard, targets: &[&Target]| {
            let mut call = database.script(&FIND, shard, shards, false);
            for target in targets {
                name(&mut call, target);
            }
            call
        },
        reads: true,
        size: |_| 0,
        read: &|_, _, said, _| match said {
            Value::Int(_) => Ok(None),
            said => {
                let mut items = Items::of(said)?;
                let id = items.id()?;
                items.task(id).map(Some)
            }
        },
    };
    let target = std::slice::from_ref(target);
    let mut found = asking.ask(target, |target| shard_of(shards, target)).await;
    found.rows.swap_remove(0)
}

/// What is noted of a row, of which anything may have become by others' hands.
pub(super) async fn noted(database: &Database, id: TaskId) -> Result<Noted, Error> {
    let shards = database.shards().await?;
    let asking = Asking {
        database,
        call: &|shard, ids: &[&TaskId]| {
            let mut call = database.script(&NOTED, shard, shards, false);
            for id in ids {
                call.arg(id.as_bytes());
            }
            call
        },
        reads: true,
        size: |_| 0,
        read: &|_, _, said, _| {
            let bytes = bytes(said)?;
            let text = String::from_utf8_lossy(&bytes);
            let (sent, history) = text.split_once('\n').unwrap_or_default();
            Ok(Noted {
                history: history.to_owned(),
                sent: (!sent.is_empty()).then(|| sent.to_owned()),
            })
        },
    };
    let mut found = asking.ask(&[id], |id| of_id(shards, *id)).await;
    found.rows.swap_remove(0)
}

pub(super) async fn list(database: &Database, page: &Page) -> Result<Vec<Task>, Error> {
    let places = all(database).await?.into_iter();
    let mut found = try_join_all(places.map(|place| list_in(place, page)))
        .await?
        .concat();
    found.sort_by_key(|row| (row.due_at, row.id));
    found.truncate(page.limit);
    Ok(found)
}

async fn all(database: &Database) -> Result<Vec<Place<'_>>, Error> {
    let shards = database.shards().await?;
    let place = |shard| Place {
        database,
        shards,
        shard,
    };
    Ok((0..shards).map(place).collect())
}

/// As many of a shard as are to be on the page.
async fn list_in(place: Place<'_>, page: &Page) -> Result<Vec<Task>, Error> {
    let mut found = Vec::new();
    let mut after = page.after;
    while found.len() < page.limit {
        let mut call = place.database.script(&LIST, place.shard, place.shards, false);
        call.arg(lane(page.state, &page.kind));
        match &after {
            Some((due_at, id)) => call.arg(codec::stored(*due_at)).arg(id.as_bytes()),
            None => call.arg("").arg(""),
        };
        call.arg((page.limit - found.len()).min(ROWS));
        let mut items = Items::of(place.database.read(call).await?.found)?;
        let has_more = items.number()? == 1;
        let before = after;
        for (_, task) in items.tasks()? {
            let task = task?;
            after = Some((task.due_at, task.id));
            // Somebody may have put it there who does not know the way.
            if task.state == page.state && task.kind == page.kind {
                found.push(task);
            }
        }
        if !has_more || after == before {
            break;
        }
    }
    Ok(found)
}

pub(super) async fn kinds(
    database: &Database,
    state: State,
    after: Option<&Kind>,
    limit: usize,
) -> Result<Vec<Kind>, Error> {
    let places = all(database).await?.into_iter();
    let kinds = places.map(|place| async move {
        let mut found: Vec<Kind> = Vec::new();
        while found.len() < limit {
            let most = (limit - found.len()).min(MOST_KINDS);
            let (kinds, has_more) = kinds_of(place, state, found.last().or(after), most).await?;
            found.extend(kinds);
            if !has_more {
                break;
            }
        }
        Ok::<_, Error>(found)
    });
    let kinds: BTreeSet<_> = try_join_all(kinds).await?.into_iter().flatten().collect();
    Ok(kinds.into_iter().take(limit).collect())
}

/// The kinds of a state in a shard, up to so many after one of them; and whether there may be more.
pub(super) async fn kinds_of(
    place: Place<'_>,
    state: State,
    after: Option<&Kind>,
    most: usize,
) -> Result<(Vec<Kind>, bool), Error> {
    let mut call = place.database.script(&KINDS, place.shard, place.shards, false);
    call.arg(codec::digit(state))
        .arg(after.map_or("", Kind::as_str))
        .arg(most);
    let mut items = Items::of(place.database.read(call).await?.found)?;
    let has_more = items.number()? == 1;
    let kinds = items.texts()?.into_iter().map(Kind::from).collect();
    Ok((kinds, has_more))
}

/// How many rows of a kind and a state are due within each of these spans, by the clock of the server of each shard: a
/// server counts them without going through them. The earliest of these clocks is the answer's.
pub(super) async fn due_within(
    database: &Database,
    kind: &Kind,
    state: State,
    spans: &[Duration],
    most: usize,
) -> Result<Stamped<Vec<usize>>, Error> {
    let counts = all(database).await?.into_iter().map(|place| {
        let mut call = database.script(&DUE_WITHIN, place.shard, place.shards, false);
        call.arg(lane(state, kind));
        for span in spans {
            call.arg(millis(*span));
        }
        database.read(call)
    });
    let (mut now, mut found) = (Timestamp::MAX, vec![0; spans.len()]);
    for answer in try_join_all(counts).await? {
        now = now.min(answer.now);
        let mut counts = Items::of(answer.found)?;
        for sum in &mut found {
            *sum = most.min(*sum + counts.count()?);
        }
    }
    Ok(Stamped { now, found })
}
