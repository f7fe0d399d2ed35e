//! Speaks to Redis: addresses ([`Node`]), scripts and how they are called, and the meaning of failures.

mod address;
mod call;
mod connection;
mod failure;
mod link;
mod listening;
mod node;
mod prefix;
mod shard_count;
#[cfg(feature = "redis-tls")]
mod tls;

pub(crate) use self::address::{Address, Topology};
pub(crate) use self::call::{Call, Lua, hash, lua};
pub(crate) use self::failure::Role;
pub(crate) use self::link::Link;
pub(crate) use self::listening::{MessageListener, listen};
pub use self::node::Node;
pub(crate) use self::prefix::check_prefix;
pub(crate) use self::shard_count::ShardCount;

/// The name in errors and logs.
pub(crate) const NAME: &str = "redis";
