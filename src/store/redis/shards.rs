//! Over how many shards rows are spread, and which of them has a row.
//!
//! The keys of a shard have one hash tag, so a Redis Cluster has them on one node, and a script sees all of them. A row is
//! in the shard of its kind and key, else of its id; all pauses are in one shard. An id that was made for a key ends with its
//! number (`shard_hash.rs`) and so says where its row is. Any other id of a row with a key does not: it is asked for in all
//! shards.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use crate::redis::{Call, Link, Role, ShardCount};
use crate::store::NewRow;
use crate::store::shard_hash;
use crate::{Error, Key, Kind, Task, TaskId};

/// The number of a shard, from 0 on.
pub(super) type Shard = u16;

/// The most shards.
const MOST: u16 = 1_024;
/// How many there are on one server, unless the caller chose otherwise.
const SINGLE: u16 = 1;
/// The same in a Cluster: enough for many masters to share them evenly.
const CLUSTER: u16 = 64;
/// How long a call may take that asks for it.
const LIMIT: Duration = Duration::from_secs(5);

/// Refuses a number of shards that is none or too many.
pub(super) fn check(shards: u16) -> Result<(), Error> {
    if (1..=MOST).contains(&shards) {
        return Ok(());
    }
    Err(Error::invalid("redis shards", shards, "allowed are 1 to 1024"))
}

/// The shard of a row by its id, unless its caller chose that together with a key.
pub(super) fn of_id(shards: u16, id: TaskId) -> Shard {
    shard_hash::of_id(id) % shards.max(1)
}

/// The shard of the rows of a key.
pub(super) fn of_key(shards: u16, kind: &Kind, key: &Key) -> Shard {
    shard_hash::of_key(kind, key) % shards.max(1)
}

/// The shards that may have rows of a kind.
pub(super) fn of_kind(shards: u16, kind: Option<&Kind>) -> Range<Shard> {
    match kind.and_then(shard_hash::of_kind) {
        Some(number) => {
            let shard = number % shards.max(1);
            shard..shard + 1
        }
        None => 0..shards,
    }
}

/// The shard of a row.
pub(super) fn home(shards: u16, id: TaskId, kind: &Kind, key: Option<&Key>) -> Shard {
    key.map_or_else(|| of_id(shards, id), |key| of_key(shards, kind, key))
}

/// The same of a row that is there.
pub(super) fn home_of(shards: u16, row: &Task) -> Shard {
    home(shards, row.id, &row.kind, row.key.as_ref())
}

/// What belongs to each shard.
pub(super) fn grouped<S: Ord, T>(all: impl IntoIterator<Item = (S, T)>) -> BTreeMap<S, Vec<T>> {
    let mut shards = BTreeMap::<S, Vec<T>>::new();
    for (shard, one) in all {
        shards.entry(shard).or_default().push(one);
    }
    shards
}

/// Whether a row of this id may be in another shard than a new one would be. The ids that this crate makes are UUIDs of
/// version 7, and say where their rows are.
pub(super) fn may_be_elsewhere(shards: u16, row: &NewRow) -> bool {
    let is_made = row.id.as_bytes()[6] >> 4 == 7;
    let home = home(shards, row.id, &row.kind, row.key.as_ref());
    shards > 1 && (!is_made || home != of_id(shards, row.id))
}

/// Knows how many shards there are. That never changes.
#[derive(Debug)]
pub(super) struct Shards {
    link: Arc<Link>,
    key: String,
    wanted: Option<u16>,
    known: ShardCount,
}

impl Shards {
    pub(super) fn new(link: Arc<Link>, key: String, wanted: Option<u16>) -> Self {
        Self {
            link,
            key,
            wanted,
            known: ShardCount::default(),
        }
    }

    /// How many there are; asks when that is not known or long ago.
    pub(super) async fn count(&self) -> Result<u16, Error> {
        self.known.get(self.ask()).await
    }

    /// Asks how many there are, and says so where nothing is kept.
    pub(super) async fn ask(&self) -> Result<u16, Error> {
        let expected = self.known.known().or(self.wanted);
        let kept = match self.kept().await? {
            Some(kept) => kept,
            None => {
                let suited = if self.link.address().is_clustered() {
                    CLUSTER
                } else {
                    SINGLE
                };
                let shards = expected.unwrap_or(suited);
                let mut set = redis::cmd("SET");
                set.arg(&self.key).arg(shards).arg("NX");
                // Of those that are first at the same moment one is quicker, whose number counts.
                self.link.call::<redis::Value>(LIMIT, &Call::command(set)).await?;
                self.kept().await?.unwrap_or(shards)
            }
        };
        check(kept)?;
        if let Some(expected) = expected.filter(|expected| *expected != kept) {
            let why = format!(
                "rows are spread over {kept} shards here, and not over {expected}: the number is fixed when a prefix is \
                 first used, and another one takes another prefix"
            );
            return Err(Role::Store.error(false, why));
        }
        self.known.set(kept);
        Ok(kept)
    }

    /// How many are kept, if anything is; makes nothing.
    pub(super) async fn kept(&self) -> Result<Option<u16>, Error> {
        let mut command = redis::cmd("GET");
        command.arg(&self.key);
        self.link.call(LIMIT, &Call::command(command)).await
    }
}
