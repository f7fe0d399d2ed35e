//! The settings of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::database::{Database, Settings};
use super::table::RedisTable;
use super::{PREFIX, RedisStore, shards};
use crate::redis::{Address, check_prefix};
use crate::store::Engine;
use crate::{Error, defaults};

/// Makes a [`RedisStore`].
#[must_use]
#[derive(Clone)]
pub struct RedisStoreBuilder {
    url: String,
    prefix: String,
    shards: Option<u16>,
    keep_history: Duration,
    wait: Option<(u32, Duration)>,
}

impl RedisStoreBuilder {
    pub(super) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            prefix: PREFIX.to_owned(),
            shards: None,
            keep_history: defaults::HISTORY,
            wait: None,
        }
    }

    /// Keeps everything under `{prefix:tasks…`; default `delayline`. Processes that share a server share tasks under one prefix.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Over how many shards rows are spread, 1 to 1024; otherwise 1, and 64 in a Cluster. The number is fixed when the prefix
    /// is first used, and kept with the rows. Another one is refused by every call; without one what is kept counts.
    ///
    /// The keys of a shard are on one master of a Cluster, whose own slots are moved from master to master, so it can grow
    /// to as many masters as there are shards. Each shard is asked by itself, so more of them cost more calls.
    pub fn shards(mut self, shards: u16) -> Self {
        self.shards = Some(shards);
        self
    }

    /// Keeps rows that this store finishes or cancels for `history`; [`defaults::HISTORY`] otherwise.
    pub fn keep_history(mut self, history: Duration) -> Self {
        self.keep_history = history;
        self
    }

    /// Waits after each write, except a claim, for up to `timeout` until so many replicas have it (`WAIT`); otherwise the call
    /// fails, and whether it took effect is not known. Without this call no replica is waited for.
    ///
    /// A claim waits for no replica: if it failed after it was written, it would hold its task for a lease while no worker runs
    /// it. One that a failover takes back may be given to another worker as well.
    ///
    /// It takes a way to the replicas and back for every call; and while too few replicas answer, calls wait one after the
    /// other, as they share a connection. A replica that was promoted leaves one less: where that is too few, all writes to
    /// the new master are errors until it has another. The page of [`RedisStore`] says what it cannot do.
    pub fn wait(mut self, replicas: u32, timeout: Duration) -> Self {
        // For `WAIT` zero is for ever.
        let timeout = timeout.max(Duration::from_millis(1));
        self.wait = Some((replicas, timeout)).filter(|_| replicas > 0);
        self
    }

    /// The store, which connects when it is first needed. Fails if a setting cannot be used.
    pub fn build(self) -> Result<RedisStore, Error> {
        check_prefix(&self.prefix)?;
        self.shards.map_or(Ok(()), shards::check)?;
        let database = Database::new(Settings {
            address: Address::parse(&self.url)?,
            prefix: self.prefix,
            shards: self.shards,
            keep_history: self.keep_history,
            wait: self.wait,
        });
        let database = Arc::new(database);
        let table = RedisTable(Arc::clone(&database));
        let settings = &database.settings;
        let mut engine = Engine::new(table, database.clock.clone(), settings.keep_history);
        engine.limit(defaults::STORE_TIMEOUT.max(database.limit()));
        Ok(RedisStore { engine, database })
    }
}

impl fmt::Debug for RedisStoreBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Without the URL, which may hold a password.
        f.debug_struct("RedisStoreBuilder")
            .field("prefix", &self.prefix)
            .field("shards", &self.shards)
            .field("keep_history", &self.keep_history)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}
