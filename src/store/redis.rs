//! Keeps rows in Redis.

mod builder;
mod claim;
mod codec;
mod database;
mod elsewhere;
mod eviction;
mod idle;
mod insert;
mod listener;
mod postpone;
mod range;
mod read;
mod shards;
mod table;
mod unreachable;
mod write;

use std::fmt;
use std::sync::Arc;

pub use self::builder::RedisStoreBuilder;
use self::database::Database;
use self::table::RedisTable;
use super::Engine;
use super::delegated::{delegate_store, unchanged};
use crate::Error;

/// What keys begin with, unless told.
const PREFIX: &str = "delayline";

/// Keeps rows in Redis (6 or later) or Valkey, for services that have no SQL database.
///
/// A clone is another handle of the same connections. Any number of processes may use one prefix. Times are those of the
/// server's clock, read in the same call; in a Redis Cluster each row goes by the clock of the master that has
/// it, so masters whose clocks differ by a second make tasks of some of them up to a second late. Leases are renewed by the
/// slowest of these clocks: they must agree to well within a third of a lease, or leases are lost. It connects when it is
/// first needed, so that a server that is down keeps no process from starting.
///
/// A service's own transaction cannot be joined here: a task is scheduled or not, whatever becomes of the service's rows.
///
/// # What can be lost
///
/// Redis answers before its replicas have what was written, and before its disk has it, unless it is told otherwise. So:
///
/// - When a master fails and a replica takes its place, what was acknowledged in the last moments may be gone: tasks that
///   were scheduled, moved or cancelled are as they were before, a finished one may run again, and one that a worker
///   has claimed may be given to another as well. [`wait`](RedisStoreBuilder::wait) makes that rarer: a write, but for
///   a claim, is then an error unless so many replicas have it. It does not rule it out, as a replica that has not may
///   still be the one that is promoted.
/// - When a server or its machine fails, what its append-only file does not have yet is gone: a second or two with
///   `appendfsync everysec`, also where only the process is killed (while the disk is busy with the last second, Redis
///   answers and writes its file later); nothing with `always`; and all since the last snapshot without such a file. `wait`
///   does not change that.
/// - A server that removes keys when its memory is full would remove tasks. [`check`](super::Store::check), and so every worker,
///   refuses one whose `maxmemory-policy` does; and new tasks are refused there: it is asked before the first, and once a
///   minute. An account that may not ask it (`INFO`) is told so by a warning.
///
/// Where none of this is acceptable a SQL database is the place for the rows.
///
/// # A full server
///
/// One whose memory is full (`maxmemory`) and which removes nothing refuses new tasks, each with an error that is transient,
/// and nothing of them is kept. What is there goes its way: claims begin, are renewed and end, ended leases are noticed,
/// hops are recorded, and tasks can be moved, cancelled, redriven and removed. That takes the server a little more memory
/// than it is allowed, for errors of tasks and places in indexes, and gives it back when history is removed. So it is from
/// Redis 6 on. A *replica* or a disk that is full is another matter: then the server refuses all.
///
/// # Shards, and how a prefix grows
///
/// Rows are spread over *shards*: 1 on one server, 64 in a Cluster, unless [`shards`](RedisStoreBuilder::shards) says
/// otherwise where the prefix is first used. Their number never changes. A shard is all on one master, and a Cluster grows
/// by moving its own slots, and the shards with them, to further masters, while processes work.
///
/// A prefix can go from one server to a Cluster, as it is, while no process uses it: stop them, have
/// `redis-cli --cluster import` move the keys, and start them with the Cluster's URL. With one shard all rows are then on one
/// master; so give `shards(64)` from the beginning to what may become that big. Another number takes another prefix, which is
/// used for new tasks while those of the old one run out.
///
/// The row of a task is where its key is, and ids say where that is if this crate made them for the task. A task whose caller
/// chose its id together with a key is looked for in all shards where a verb names the id, and so is any id of another maker
/// (no UUID of version 7) before a task is scheduled under it: with 64 shards that is 64 calls more, side by side, and an error
/// while one of the servers does not answer. Two callers who schedule one such id at the same moment under two keys may both
/// have a task. An id of this crate is looked for where it says: one that was scheduled under a key, and is scheduled again
/// without it, is another task where there are several shards.
///
/// # What is not known
///
/// A verb whose answer is lost with its connection is an error that is transient: the change is done or not. A new task whose
/// answer was lost is looked for at once, and answered as one that is there.
#[derive(Clone)]
pub struct RedisStore {
    engine: Engine<RedisTable>,
    database: Arc<Database>,
}

impl RedisStore {
    /// The server of a URL, `redis://[user][:password@]host[:port][/database]`; or
    /// `redis+sentinel://…host[:port],…/master[/database]` for the master that sentinels name, or
    /// `redis+cluster://…host[:port],…` for a Cluster; each with `rediss` for TLS.
    ///
    /// It does not connect before it is first needed, so that a server that is down keeps no process from starting; ask for
    /// [`check`](super::Store::check) to know at once. The settings are the defaults of [`builder`](Self::builder).
    ///
    /// ```no_run
    /// use delayline::Scheduler;
    /// use delayline::store::RedisStore;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let scheduler = Scheduler::new(RedisStore::new("redis://cache.example")?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new(url: &str) -> Result<Self, Error> {
        Self::builder(url).build()
    }

    /// A store with settings of its own, on the server of a URL.
    pub fn builder(url: &str) -> RedisStoreBuilder {
        RedisStoreBuilder::new(url)
    }

    /// Says over how many shards the rows of this prefix are spread; nothing where it was never used. It makes nothing.
    pub async fn shards(&self) -> Result<Option<u16>, Error> {
        self.database.shards.kept().await
    }
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = &self.database.settings;
        f.debug_struct("RedisStore")
            .field("server", &settings.address)
            .field("prefix", &settings.prefix)
            .field("keep_history", &settings.keep_history)
            .finish_non_exhaustive()
    }
}

delegate_store!(RedisStore, engine, unchanged);

#[cfg(test)]
mod tests;
