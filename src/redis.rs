//! What everything that speaks to Redis has in common: whom to connect to, scripts and how they are called, how tasks
//! are spread over slots, and what failures mean.

mod address;
mod call;
mod connection;
mod failure;
mod layout;
mod link;
mod listening;
mod node;
mod pause;
mod rounds;
mod spread;
#[cfg(feature = "redis-tls")]
mod tls;

pub(crate) use self::address::{Address, Topology};
pub(crate) use self::call::{Call, Lua, hash, lua};
pub(crate) use self::failure::Role;
pub(crate) use self::layout::{Layout, Slot, check_prefix, check_slots, fnv};
pub(crate) use self::link::Link;
pub(crate) use self::listening::{Ear, listen};
pub use self::node::Node;
pub(crate) use self::pause::pause;
pub(crate) use self::rounds::{LARGE, Request, Rounds};
pub(crate) use self::spread::{Layouts, Spread};

/// As errors and logs name it.
pub(crate) const NAME: &str = "redis";
