//! Who receives, and who watches which slot.

use std::time::Duration;

use crate::Error;
use crate::defaults;
use crate::redis::{Call, Layouts, Link, Lua, Slot, Spread, fnv, lua};

use super::keys::Names;

static BEAT: Lua = lua!("../../redis/layout.lua", "beat.lua");
static COUNT: Lua = lua!("crew_count.lua");

/// How often a process says that it receives, at the most and at the least, and else three times a lease.
const BEATS: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// The processes that receive, as this one knows them.
///
/// There is no leader, and nothing is locked: any process may take from any slot. Each slot has one process that watches
/// it, so that idle slots are not asked about by all; which one, every process works out for itself. While two disagree
/// a slot is watched by both, or for less than a lease by none.
#[derive(Clone, Debug)]
pub(super) struct Crew {
    me: String,
    lease: Duration,
    members: Vec<String>,
}

impl Crew {
    pub(super) fn new(lease: Duration) -> Self {
        let me = format!("{:016x}{:016x}", fastrand::u64(..), fastrand::u64(..));
        Self {
            members: vec![me.clone()],
            me,
            lease,
        }
    }

    /// How long from one beat to the next. A process counts as gone when it has missed one: together that is a lease.
    pub(super) fn every(&self) -> Duration {
        let (shortest, longest) = BEATS;
        (self.lease / 3).clamp(shortest, longest)
    }

    /// The call by which this process says that it receives, or leaves.
    pub(super) fn beat(&self, names: &Names, spread: &Spread, stays: bool) -> Call {
        let assumed = spread.assumed();
        let stays_for = if stays { self.every() * 2 } else { Duration::ZERO };
        let mut call = Call::script(&BEAT, &[&names.crew, &names.layout]);
        call.arg(&self.me)
            .arg(u64::try_from(stays_for.as_millis()).unwrap_or(u64::MAX))
            .arg(assumed.epoch)
            .arg(assumed.slots)
            .arg(&names.hints);
        call
    }

    /// Sends such a call, and gives what was answered.
    pub(super) async fn send(call: Call, link: &Link) -> Result<(Layouts, Vec<String>), Error> {
        let answer: Vec<redis::Value> = link.call(defaults::SEND_TIMEOUT, &call).await?;
        let mut answer = answer.into_iter();
        let mut read = || -> Result<_, redis::ParsingError> {
            let mut number = || redis::from_redis_value::<u64>(answer.next().unwrap_or(redis::Value::Nil));
            let (epoch, slots, former) = (number()?, number()?, number()?);
            let short = |slots| u16::try_from(slots).unwrap_or(u16::MAX);
            let layouts = Layouts::of((epoch, short(slots), short(former)));
            let members = answer.by_ref().map(redis::from_redis_value::<String>);
            Ok((layouts, members.collect::<Result<_, _>>()?))
        };
        read().map_err(|error| link.role().error(false, error))
    }

    /// What such an answer told about the others.
    pub(super) fn heard(&mut self, mut members: Vec<String>) {
        if !members.contains(&self.me) {
            members.push(self.me.clone());
        }
        self.members = members;
    }

    pub(super) fn is_alone(&self) -> bool {
        self.members.len() < 2
    }

    /// Whether this process is the one that watches a slot: the one of the highest weight (rendezvous hashing), so that
    /// when one comes or goes, no other slots change hands than its own.
    pub(super) fn watches(&self, slot: Slot) -> bool {
        let weight = |member: &String| {
            let mut bytes = member.clone().into_bytes();
            bytes.extend_from_slice(&slot.epoch.to_be_bytes());
            bytes.extend_from_slice(&slot.number.to_be_bytes());
            (mixed(fnv(&bytes)), member.clone())
        };
        self.members
            .iter()
            .map(weight)
            .max()
            .is_none_or(|(_, member)| member == self.me)
    }
}

/// How many processes receive, as far as they have said so.
pub(super) async fn count(names: &Names, link: &Link) -> Result<u64, Error> {
    let call = Call::script(&COUNT, &[&names.crew]);
    link.call(defaults::SEND_TIMEOUT, &call).await
}

/// The finalizer of MurmurHash3: the last bytes alone hardly reach the high bits of an FNV hash.
fn mixed(mut hash: u64) -> u64 {
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crew(me: &str, members: &[&str]) -> Crew {
        Crew {
            me: me.into(),
            lease: Duration::from_secs(30),
            members: members.iter().map(|&member| member.into()).collect(),
        }
    }

    fn watcher(members: &[&'static str], number: u16) -> &'static str {
        let slot = Slot { epoch: 1, number };
        let watchers: Vec<_> = members
            .iter()
            .filter(|me| crew(me, members).watches(slot))
            .collect();
        assert_eq!(watchers.len(), 1, "{watchers:?}");
        watchers[0]
    }

    #[test]
    fn each_slot_is_watched_by_one_and_they_share() {
        let members = ["a", "b", "c", "d"];
        for me in members {
            let watched = (0..1_000).filter(|&slot| watcher(&members, slot) == me).count();
            assert!((180..320).contains(&watched), "{me}: {watched}");
        }
    }

    #[test]
    fn who_leaves_hands_over_its_own_slots_and_no_others() {
        for slot in 0..1_000 {
            let before = watcher(&["a", "b", "c", "d"], slot);
            let after = watcher(&["a", "b", "d"], slot);
            assert!(before == after || before == "c", "{slot}: {before} to {after}");
        }
    }

    #[test]
    fn two_missed_beats_are_less_than_a_lease() {
        for seconds in [1, 30, 3_600] {
            let crew = Crew::new(Duration::from_secs(seconds));
            assert!(crew.every() * 3 <= Duration::from_secs(seconds));
        }
    }
}
