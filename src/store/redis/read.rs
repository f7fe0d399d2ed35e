//! What only looks: the time, the server, rows.

use std::collections::BTreeSet;

use super::answer::{self, Items};
use super::codec::{self, lane};
use super::database::{Database, NOW, Told};
use super::keys;
use super::moving;
use super::repeat::Tries;
use super::together::{all, together};
use crate::redis::{Layout, Lua, Node, Role, Slot, lua};
use crate::store::Page;
use crate::{Error, Kind, State, Target, Task, TaskId, Timestamp};

static LIST: Lua = lua!("row.lua", "list.lua");
static KINDS: Lua = lua!("row.lua", "kinds.lua");

/// How many rows one call lists.
const ROWS: usize = 100;

/// Fails unless every slot can be asked, on a server that keeps what it is given.
pub(super) async fn check(database: &Database) -> Result<(), Error> {
    let layouts = database.layouts_now().await?;
    let calls = layouts.slots().map(|slot| {
        let mut call = database.script(&NOW, slot, Told::OfThePast, layouts.current);
        call.arg(1);
        database.read(call)
    });
    for answer in together(calls).await {
        let mut info = Items::of(redis::Value::Array(vec![answer?.found]))?;
        refuse_eviction(&Node::read(&info.text()?))?;
    }
    Ok(())
}

/// Refuses a server that removes any keys when its memory is full: they would be tasks.
fn refuse_eviction(node: &Node) -> Result<(), Error> {
    if !node.evicts() {
        return Ok(());
    }
    let why = format!(
        "the server's `maxmemory-policy` is {}: it would remove tasks when its memory is full; `noeviction` is safe",
        node.policy
    );
    Err(Role::Store.error(false, why))
}

pub(super) async fn find(database: &Database, target: &Target) -> Result<Option<Task>, Error> {
    let mut tries = Tries::default();
    loop {
        match find_once(database, target).await {
            Err(error) => tries.again(error)?,
            found => return found,
        }
    }
}

async fn find_once(database: &Database, target: &Target) -> Result<Option<Task>, Error> {
    let layouts = database.layouts().await?;
    match target {
        Target::Id(id) => {
            let layout = moving::bring(database, layouts, [*id], []).await?;
            match keys::packed(database, layout, layout.slot(*id), *id).await? {
                Some(value) => answer::task(*id, &value),
                None => Ok(None),
            }
        }
        Target::Key(kind, key) => {
            let name = (kind.clone(), key.clone());
            let layout = moving::bring(database, layouts, [], [name]).await?;
            keys::row_of(database, layout, kind, key).await
        }
    }
}

pub(super) async fn list(database: &Database, page: &Page) -> Result<Vec<Task>, Error> {
    let mut tries = Tries::default();
    loop {
        match list_once(database, page).await {
            Err(error) => tries.again(error)?,
            found => return found,
        }
    }
}

async fn list_once(database: &Database, page: &Page) -> Result<Vec<Task>, Error> {
    let layouts = database.layouts().await?;
    if let Some(former) = layouts.former {
        let rows = list_in_all(database, former, Told::OfThePast, page).await?;
        moving::bring(database, layouts, rows.into_iter().map(|row| row.id), []).await?;
    }
    let mut found = list_in_all(database, layouts.current, Told::No, page).await?;
    found.sort_by_key(|row| (row.due_at, row.id));
    found.truncate(page.limit);
    Ok(found)
}

/// As many of each slot as are to be on the page.
async fn list_in_all(
    database: &Database,
    layout: Layout,
    told: Told,
    page: &Page,
) -> Result<Vec<Task>, Error> {
    let calls = layout
        .all()
        .map(|slot| list_in(database, layout, slot, told, page));
    Ok(all(together(calls).await)?.concat())
}

/// The same of one slot.
async fn list_in(
    database: &Database,
    layout: Layout,
    slot: Slot,
    told: Told,
    page: &Page,
) -> Result<Vec<Task>, Error> {
    let mut found = Vec::new();
    let mut after = page.after.map(place);
    while found.len() < page.limit {
        let wanted = (page.limit - found.len()).min(ROWS);
        let mut call = database.script(&LIST, slot, told, layout);
        call.arg(lane(page.state, &page.kind));
        match &after {
            Some((due, id)) => call.arg(*due).arg(id),
            None => call.arg("").arg(""),
        };
        call.arg(wanted);
        let mut items = Items::of(database.read(call).await?.found)?;
        let given = usize::try_from(items.number()?).unwrap_or(0);
        let mut last = None;
        while !items.is_empty() {
            let id = items.id()?;
            let task = items.task(id)?;
            last = Some(place((task.due_at, task.id)));
            // Somebody may have put it there who does not know the way.
            if task.state == page.state && task.kind == page.kind {
                found.push(task);
            }
        }
        if given < wanted || last.is_none() {
            break;
        }
        after = last;
    }
    Ok(found)
}

pub(super) async fn kinds(database: &Database, state: State) -> Result<Vec<Kind>, Error> {
    let mut tries = Tries::default();
    loop {
        match kinds_once(database, state).await {
            Err(error) => tries.again(error)?,
            found => return found.map(|found| found.into_iter().collect()),
        }
    }
}

async fn kinds_once(database: &Database, state: State) -> Result<BTreeSet<Kind>, Error> {
    let layouts = database.layouts().await?;
    let mut found = kinds_in(database, layouts.current, Told::No, state).await?;
    let Some(former) = layouts.former else {
        return Ok(found);
    };
    // What a former slot says may be of rows that have become others: those that it has are brought, until some are so.
    for kind in kinds_in(database, former, Told::OfThePast, state).await? {
        while !found.contains(&kind) {
            let page = Page {
                kind: kind.clone(),
                state,
                after: None,
                limit: 1,
            };
            let rows = list_in_all(database, former, Told::OfThePast, &page).await?;
            let is_all = rows.is_empty();
            moving::bring(database, layouts, rows.into_iter().map(|row| row.id), []).await?;
            found = kinds_in(database, layouts.current, Told::No, state).await?;
            if is_all {
                break;
            }
        }
    }
    Ok(found)
}

async fn kinds_in(
    database: &Database,
    layout: Layout,
    told: Told,
    state: State,
) -> Result<BTreeSet<Kind>, Error> {
    let calls = layout.all().map(|slot| async move {
        let mut call = database.script(&KINDS, slot, told, layout);
        call.arg(codec::digit(state));
        Items::of(database.read(call).await?.found)
    });
    let mut found = BTreeSet::new();
    for mut items in all(together(calls).await)? {
        while !items.is_empty() {
            found.insert(Kind::from(items.text()?));
        }
    }
    Ok(found)
}

fn place((due_at, id): (Timestamp, TaskId)) -> (i64, Vec<u8>) {
    (super::codec::stored(due_at), id.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_removes_keys_is_refused() {
        let info = |most: u64, policy: &str| {
            format!("# Memory\r\nmaxmemory:{most}\r\nmaxmemory_policy:{policy}\r\n")
        };
        for (most, policy, is_refused) in [
            (0, "allkeys-lru", false),
            (1 << 30, "allkeys-lru", true),
            (1 << 30, "allkeys-random", true),
            (1 << 30, "noeviction", false),
            (1 << 30, "volatile-ttl", false),
        ] {
            let refused = refuse_eviction(&Node::read(&info(most, policy)));
            assert_eq!(refused.is_err(), is_refused, "{policy}");
            assert!(refused.is_ok() || !refused.unwrap_err().is_transient());
        }
        assert!(refuse_eviction(&Node::read("")).is_ok());
    }
}
