//! Makes pointers anew that were lost, and removes those of rows that are no more.
//!
//! A row and the pointer of its id are in two shards, which may be on two masters. One of them may lose what it had, as a
//! failover takes back the last moments, and the other not. A row whose id does not lead to it is still found by indexes and
//! by its key; but who claims it could neither renew nor end the claim, for which there is nothing but the id, and it would
//! be started again and again. So who finds such a row by other means has its id point there again.

use std::collections::BTreeMap;

use futures_util::future::join_all;

use super::database::Database;
use super::parts::ROWS;
use super::shards::{Shard, of_id};
use crate::redis::{Lua, lua};
use crate::{Error, TaskId};

static REPOINT: Lua = lua!("row.lua", "passes.lua", "repoint.lua");
static UNPOINT: Lua = lua!("row.lua", "passes.lua", "unpoint.lua");

/// What leads from an id to its row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pointer {
    pub(super) id: TaskId,
    /// The shard that has the row.
    pub(super) shard: Shard,
    /// By which try the id points there.
    pub(super) tried: u64,
}

/// Has ids point to their rows if they do not.
pub(super) async fn repoint(database: &Database, shards: u16, pointers: Vec<Pointer>) {
    for error in each(database, &REPOINT, shards, pointers).await {
        // Whoever finds the rows next tries it again.
        tracing::warn!(
            %error,
            "some ids could not be made to point to their tasks again; they are found by key, and by id once \
             this has succeeded"
        );
    }
}

/// Removes what pointed to rows that have been removed.
pub(super) async fn unpoint(database: &Database, shards: u16, pointers: Vec<Pointer>) {
    for error in each(database, &UNPOINT, shards, pointers).await {
        // They do no harm, but take place.
        tracing::warn!(
            %error,
            "what pointed to removed tasks could not be removed as well; it takes a little room, and nothing else"
        );
    }
}

/// Calls a script with pointers, each in the shard of its id; gives what failed.
async fn each(database: &Database, script: &'static Lua, shards: u16, pointers: Vec<Pointer>) -> Vec<Error> {
    let mut by_own = BTreeMap::<Shard, Vec<Pointer>>::new();
    for pointer in pointers {
        by_own.entry(of_id(shards, pointer.id)).or_default().push(pointer);
    }
    let calls = by_own.iter().map(|(own, pointers)| async move {
        for part in pointers.chunks(ROWS) {
            let mut call = database.script(script, *own, shards, false);
            for pointer in part {
                call.arg(pointer.id.as_bytes())
                    .arg(pointer.shard)
                    .arg(pointer.tried);
            }
            database.write(call).await?;
        }
        Ok(())
    });
    join_all(calls)
        .await
        .into_iter()
        .filter_map(Result::err)
        .collect()
}
