//! Lists every key and channel in Redis.

use super::shards::Shard;

/// The names that all shards share, and those of each shard.
#[derive(Clone, Debug)]
pub(super) struct Names {
    /// The beginning of the hash tags.
    prefix: String,
    /// A HASH: how many shards there are.
    pub(super) shards: String,
    /// A ZSET: the receiving processes, by when they count as gone (ms, the server's clock). Beside `shards`.
    pub(super) members: String,
    /// A channel: hints for sleeping receivers.
    pub(super) hints: String,
}

impl Names {
    /// Makes the names under a prefix that was checked.
    pub(super) fn new(prefix: &str, database: i64) -> Self {
        let prefix = format!("{prefix}:wakes");
        Self {
            shards: format!("{{{prefix}}}:shards"),
            members: format!("{{{prefix}}}:members"),
            // Channels are shared by all databases of a server.
            hints: format!("{{{prefix}}}:hints:{database}"),
            prefix,
        }
    }

    pub(super) fn shard(&self, Shard(number): Shard) -> Keys {
        let tag = format!("{{{}:{number}}}", self.prefix);
        Keys {
            due: format!("{tag}:due"),
            leased: format!("{tag}:leased"),
            kinds: format!("{tag}:kinds"),
            foreign: format!("{tag}:foreign"),
        }
    }
}

/// The names of one shard, all under one hash tag, so that in a Redis Cluster they are on one node.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    /// A ZSET: wake-ups that are held, by when they are due (ms, the server's clock).
    pub(super) due: String,
    /// A ZSET: wake-ups that were received and not acknowledged yet, by when their lease ends.
    pub(super) leased: String,
    /// A HASH: the names of the kinds that members name by a number.
    pub(super) kinds: String,
    /// A ZSET: members that are no wake-ups, by when they were found.
    pub(super) foreign: String,
}
