//! What only looks: the time, the server, rows.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::answer::{self, Items};
use super::codec::{self, lane};
use super::database::{Database, Told, together};
use super::keys;
use crate::redis::{Layout, Lua, Role, Slot, lua};
use crate::store::Page;
use crate::{Error, Kind, State, Target, Task, TaskId, Timestamp};

pub(super) static NOW: Lua = lua!("row.lua", "now.lua");
static LIST: Lua = lua!("row.lua", "list.lua");
static KINDS: Lua = lua!("row.lua", "kinds.lua");

/// How many rows one call lists.
const ROWS: usize = 100;

impl Database {
    /// The time by the clock of the server that has the first slot.
    pub(super) async fn now(&self, layout: Layout) -> Result<Timestamp, Error> {
        let (number, epoch) = (0, layout.epoch);
        let mut call = self.script(&NOW, Slot { epoch, number }, Told::No, layout);
        call.arg(0);
        Ok(self.read(call).await?.now)
    }
}

/// Fails unless every slot can be asked, on a server that keeps what it is given.
pub(super) async fn check(database: &Arc<Database>) -> Result<(), Error> {
    let layout = database.layout_now().await?;
    let calls = layout.all().map(|slot| {
        let mut call = database.script(&NOW, slot, Told::No, layout);
        call.arg(1);
        let database = Arc::clone(database);
        async move { database.read(call).await }
    });
    for answer in together(calls.collect()).await {
        let mut info = Items::of(redis::Value::Array(vec![answer?.found]))?;
        refuse_eviction(&info.text()?)?;
    }
    Ok(())
}

/// Refuses a server that removes any keys when its memory is full: they would be tasks.
fn refuse_eviction(info: &str) -> Result<(), Error> {
    let field = |name: &str| {
        let mut lines = info.lines().filter_map(|line| line.trim().split_once(':'));
        lines.find(|(of, _)| *of == name).map(|(_, value)| value)
    };
    let policy = field("maxmemory_policy").unwrap_or_default();
    let is_limited = field("maxmemory").is_some_and(|most| most != "0");
    if is_limited && policy.starts_with("allkeys-") {
        let why = format!(
            "the server's `maxmemory-policy` is {policy}: it would remove tasks when its memory is full; `noeviction` \
             is safe"
        );
        return Err(Role::Store.error(false, why));
    }
    Ok(())
}

pub(super) async fn find(database: &Database, target: &Target) -> Result<Option<Task>, Error> {
    let layout = database.layout().await?;
    match target {
        Target::Id(id) => match database.packed(layout.slot(*id), *id).await? {
            Some(value) => answer::task(*id, &value),
            None => Ok(None),
        },
        Target::Key(kind, key) => keys::row_of(database, layout, kind, key).await,
    }
}

pub(super) async fn list(database: &Arc<Database>, page: &Page) -> Result<Vec<Task>, Error> {
    let layout = database.layout().await?;
    let calls = layout.all().map(|slot| {
        let (database, page) = (Arc::clone(database), page.clone());
        async move { list_in(&database, layout, slot, &page).await }
    });
    let mut found = Vec::new();
    for rows in together(calls.collect()).await {
        found.extend(rows?);
    }
    found.sort_by_key(|row| (row.due_at, row.id));
    found.truncate(page.limit);
    Ok(found)
}

/// The same of one slot.
async fn list_in(database: &Database, layout: Layout, slot: Slot, page: &Page) -> Result<Vec<Task>, Error> {
    let mut found = Vec::new();
    let mut after = page.after.map(place);
    while found.len() < page.limit {
        let wanted = (page.limit - found.len()).min(ROWS);
        let mut call = database.script(&LIST, slot, Told::No, layout);
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

pub(super) async fn kinds(database: &Arc<Database>, state: State) -> Result<Vec<Kind>, Error> {
    let layout = database.layout().await?;
    let calls = layout.all().map(|slot| {
        let database = Arc::clone(database);
        async move {
            let mut call = database.script(&KINDS, slot, Told::No, layout);
            call.arg(codec::digit(state));
            Items::of(database.read(call).await?.found)
        }
    });
    let mut found = BTreeSet::new();
    for items in together(calls.collect()).await {
        let mut items = items?;
        while !items.is_empty() {
            found.insert(Kind::from(items.text()?));
        }
    }
    Ok(found.into_iter().collect())
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
            let refused = refuse_eviction(&info(most, policy));
            assert_eq!(refused.is_err(), is_refused, "{policy}");
            assert!(refused.is_ok() || !refused.unwrap_err().is_transient());
        }
        assert!(refuse_eviction("").is_ok());
    }
}
