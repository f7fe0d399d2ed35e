//! Knows over how many shards wake-ups are spread.

use crate::redis::{Call, Link, Lua, ShardCount, Topology, lua};
use crate::store::fnv::fnv;
use crate::{Error, TaskId, defaults};

/// The most shards.
const MOST: u16 = 1_024;
/// The default number on one server.
const SINGLE: u16 = 1;
/// The same in a Cluster: enough for a few masters to share them evenly.
const CLUSTER: u16 = 16;
const FIELD: &str = "redis shards";

static ASK: Lua = lua!("shards.lua", "shards_ask.lua");

/// A part of the wake-ups, whose keys are under one hash tag, so that a Redis Cluster has them on one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Shard(pub(super) u16);

impl Shard {
    /// Returns the shard of a task, by its id and the number of shards only.
    pub(super) fn of(id: TaskId, shards: u16) -> Self {
        let number = fnv(id.as_bytes()) % u64::from(shards.max(1));
        Self(u16::try_from(number).unwrap_or(0))
    }

    /// Lists the shards of this number.
    pub(super) fn all(shards: u16) -> impl Iterator<Item = Self> {
        (0..shards).map(Self)
    }
}

/// Refuses a number of shards that is zero or too large.
pub(super) fn check(shards: u16) -> Result<(), Error> {
    match (1..=MOST).contains(&shards) {
        true => Ok(()),
        false => Err(Error::invalid(FIELD, shards, "allowed are 1 to 1024")),
    }
}

/// Knows the number of shards, which is fixed when a prefix is first used and kept in Redis.
#[derive(Debug)]
pub(super) struct Shards {
    key: String,
    /// The number that this process requires.
    wanted: Option<u16>,
    /// How many are made where there are none.
    first: u16,
    known: ShardCount,
}

impl Shards {
    /// Knows the number that is kept under `key`. Where nothing is kept, `wanted` are made, or as many as suit the
    /// topology; a number other than `wanted` is an error.
    pub(super) fn new(key: String, wanted: Option<u16>, topology: &Topology) -> Self {
        let suited = match topology {
            Topology::Cluster => CLUSTER,
            Topology::Single | Topology::Sentinel(_) => SINGLE,
        };
        Self {
            key,
            wanted,
            first: wanted.unwrap_or(suited),
            known: ShardCount::default(),
        }
    }

    /// Returns the number of shards; asks when it is not known or was read long ago.
    pub(super) async fn number(&self, link: &Link) -> Result<u16, Error> {
        let ask = async {
            let mut call = Call::script(&ASK, &[&self.key]);
            call.arg(self.assumed());
            self.record(link, link.call(defaults::SEND_TIMEOUT, &call).await?)
        };
        self.known.get(ask).await
    }

    /// Returns the number of shards, if any were made; makes none.
    pub(super) async fn kept(&self, link: &Link) -> Result<Option<u16>, Error> {
        let mut command = redis::cmd("HMGET");
        command.arg(&self.key).arg("shards");
        let (kept,): (Option<i64>,) = link.call(defaults::SEND_TIMEOUT, &Call::command(command)).await?;
        kept.map(|kept| self.record(link, kept)).transpose()
    }

    /// Returns how many are to be made where none are kept: those that this process knows, as a server may have lost
    /// them.
    pub(super) fn assumed(&self) -> u16 {
        self.known.known().unwrap_or(self.first)
    }

    /// Records the number that a server has answered.
    pub(super) fn record(&self, link: &Link, kept: i64) -> Result<u16, Error> {
        let number = u16::try_from(kept).ok().filter(|number| check(*number).is_ok());
        let Some(number) = number else {
            let text = format!(
                "the key {} says that there are {kept} shards: allowed are 1 to 1024",
                self.key
            );
            return Err(link.role().error(false, text));
        };
        if let Some(wanted) = self.wanted.filter(|wanted| *wanted != number) {
            let allowed = format!(
                "under this prefix there are {number}, which stays so: allowed is {number}, or another prefix"
            );
            return Err(Error::invalid(FIELD, wanted, allowed));
        }
        self.known.set(number);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_spread_evenly_and_stay_where_they_are() {
        let mut counts = [0_u32; 16];
        for number in 0..16_000_u128 {
            let id = TaskId::from_bytes((number << 13).to_be_bytes());
            counts[usize::from(Shard::of(id, 16).0)] += 1;
        }
        for count in counts {
            assert!((700..1_300).contains(&count), "{counts:?}");
        }
        let id = TaskId::from_bytes(*b"0123456789abcdef");
        assert_eq!(Shard::of(id, 16), Shard(13), "where it was in the release before");
    }
}
