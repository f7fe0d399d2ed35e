//! Checks the wake-ups that are kept in Redis.

use std::time::Duration;

use serde::Serialize;

use super::RedisBackend;
use super::membership;
use super::shards::Shard;
use crate::redis::{Call, Lua, Node, lua};
use crate::{Error, defaults};

static CHECKUP: Lua = lua!("checkup.lua");

/// What is kept for a [`RedisBackend`], and where. For operators; it sends a few commands for every shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct RedisCheckup {
    /// The server, or every master.
    pub nodes: Vec<Node>,
    /// How many shards there are; 0 where nothing was ever sent.
    pub shards: u16,
    /// How many processes receive.
    pub receivers: u64,
    /// What is in each shard.
    pub contents: Vec<ShardCheckup>,
}

/// What is in one shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ShardCheckup {
    /// The key of the held wake-ups.
    pub key: String,
    /// How many are held.
    pub held: u64,
    /// For how many ms the first of them is due; 0 if none is.
    pub due_for_ms: u64,
    /// How many were received and not acknowledged yet.
    pub leased: u64,
    /// How many of these have an ended lease, and were not given to another receiver.
    pub ended: u64,
    /// For how many ms the first of these leases has ended; 0 if none has.
    pub ended_for_ms: u64,
    /// How many members were found that are no wake-ups, and set aside.
    pub foreign: u64,
    /// The memory that the wake-ups take, in bytes, as the server estimates it; 0 where it may not be asked.
    pub bytes: u64,
}

impl RedisBackend {
    /// Inspects the servers and the wake-ups, and changes nothing.
    pub async fn checkup(&self) -> Result<RedisCheckup, Error> {
        let nodes = Node::all(&self.link).await?;
        let sender = &self.parts().sender;
        let shards = sender.shards.kept(&self.link).await?.unwrap_or(0);
        let mut contents = Vec::new();
        for shard in Shard::all(shards) {
            let keys = sender.names.shard(shard);
            let call = Call::script(&CHECKUP, &[&keys.due, &keys.leased, &keys.foreign]);
            let (held, due_for_ms, leased, ended, ended_for_ms, foreign, held_bytes, leased_bytes): (
                u64,
                u64,
                u64,
                u64,
                u64,
                u64,
                u64,
                u64,
            ) = self.link.call(defaults::SEND_TIMEOUT, &call).await?;
            contents.push(ShardCheckup {
                key: keys.due,
                held,
                due_for_ms,
                leased,
                ended,
                ended_for_ms,
                foreign,
                bytes: held_bytes + leased_bytes,
            });
        }
        Ok(RedisCheckup {
            nodes,
            shards,
            receivers: membership::count(&sender.names, &self.link).await?,
            contents,
        })
    }

    /// How long a wake-up may normally stay after it is due, or after its lease has ended.
    pub const OVERDUE_AFTER: Duration = Duration::from_secs(2);
}
