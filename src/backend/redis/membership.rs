//! Knows which processes receive, and which one watches which shard.

use std::time::Duration;

use crate::Error;
use crate::clock::unique_name;
use crate::defaults;
use crate::redis::{Call, Link, Lua, lua};
use crate::store::fnv::fnv;

use super::keys::Names;
use super::shards::{Shard, Shards};

static HEARTBEAT: Lua = lua!("shards.lua", "heartbeat.lua");
static COUNT: Lua = lua!("membership_count.lua");

/// The shortest and the longest time between heartbeats, of which there are otherwise three in a lease.
const HEARTBEATS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The processes that receive, as this one knows them.
///
/// There is no leader and no lock: any process may take from any shard. Each shard has one process that watches it, so
/// that idle shards are not polled by all; every process computes which one. While two disagree a shard is watched by
/// both, or for less than a lease by none.
#[derive(Clone, Debug)]
pub(super) struct Membership {
    me: String,
    lease: Duration,
    members: Vec<String>,
}

impl Membership {
    pub(super) fn new(lease: Duration) -> Self {
        let me = unique_name();
        Self {
            members: vec![me.clone()],
            me,
            lease,
        }
    }

    /// Returns the time between heartbeats. A process counts as gone when it has missed one: together that is a lease.
    pub(super) fn every(&self) -> Duration {
        let (shortest, longest) = HEARTBEATS;
        (self.lease / 3).clamp(shortest, longest)
    }

    /// Makes the call by which this process announces that it receives, or leaves.
    pub(super) fn heartbeat(&self, names: &Names, shards: &Shards, stays: bool) -> Call {
        let stays_for = if stays { self.every() * 2 } else { Duration::ZERO };
        let mut call = Call::script(&HEARTBEAT, &[&names.members, &names.shards]);
        call.arg(&self.me)
            .arg(u64::try_from(stays_for.as_millis()).unwrap_or(u64::MAX))
            .arg(shards.assumed())
            .arg(&names.hints);
        call
    }

    /// Sends such a call, and returns the number of shards and the processes that receive.
    pub(super) async fn send(call: Call, link: &Link) -> Result<(i64, Vec<String>), Error> {
        let answer: Vec<redis::Value> = link.call(defaults::SEND_TIMEOUT, &call).await?;
        let mut answer = answer.into_iter();
        let mut read = || -> Result<_, redis::ParsingError> {
            let shards = redis::from_redis_value::<i64>(answer.next().unwrap_or(redis::Value::Nil))?;
            let members = answer.by_ref().map(redis::from_redis_value::<String>);
            Ok((shards, members.collect::<Result<_, _>>()?))
        };
        read().map_err(|error| link.role().error(false, error))
    }

    /// Replaces the list of processes.
    pub(super) fn update(&mut self, mut members: Vec<String>) {
        if !members.contains(&self.me) {
            members.push(self.me.clone());
        }
        self.members = members;
    }

    pub(super) fn is_alone(&self) -> bool {
        self.members.len() < 2
    }

    /// Says whether this process watches a shard: the one of the highest weight does (rendezvous hashing), so that when
    /// one comes or goes, only its own shards change hands.
    pub(super) fn watches(&self, shard: Shard) -> bool {
        let weight = |member: &String| {
            let mut bytes = member.clone().into_bytes();
            bytes.extend_from_slice(&shard.0.to_be_bytes());
            (mixed(fnv(&bytes)), member.clone())
        };
        self.members
            .iter()
            .map(weight)
            .max()
            .is_none_or(|(_, member)| member == self.me)
    }
}

/// Counts the processes that have announced that they receive.
pub(super) async fn count(names: &Names, link: &Link) -> Result<u64, Error> {
    let call = Call::script(&COUNT, &[&names.members]);
    link.call(defaults::SEND_TIMEOUT, &call).await
}

/// Finishes a hash as MurmurHash3 does: the last bytes alone hardly reach the high bits of an FNV hash.
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(me: &str, members: &[&str]) -> Membership {
        Membership {
            me: me.into(),
            lease: Duration::from_secs(30),
            members: members.iter().map(|&member| member.into()).collect(),
        }
    }

    fn watcher(members: &[&'static str], number: u16) -> &'static str {
        let watchers: Vec<_> = members
            .iter()
            .filter(|me| membership(me, members).watches(Shard(number)))
            .collect();
        assert_eq!(watchers.len(), 1, "{watchers:?}");
        watchers[0]
    }

    #[test]
    fn each_shard_is_watched_by_one_and_they_share() {
        let members = ["a", "b", "c", "d"];
        for me in members {
            let watched = (0..1_000).filter(|&shard| watcher(&members, shard) == me).count();
            assert!((180..320).contains(&watched), "{me}: {watched}");
        }
    }

    #[test]
    fn a_member_that_leaves_hands_over_its_own_shards_and_no_others() {
        for shard in 0..1_000 {
            let before = watcher(&["a", "b", "c", "d"], shard);
            let after = watcher(&["a", "b", "d"], shard);
            assert!(before == after || before == "c", "{shard}: {before} to {after}");
        }
    }

    #[test]
    fn two_missed_heartbeats_are_less_than_a_lease() {
        for seconds in [1, 30, 3_600] {
            let membership = Membership::new(Duration::from_secs(seconds));
            assert!(membership.every() * 3 <= Duration::from_secs(seconds));
        }
    }
}
