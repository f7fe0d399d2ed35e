//! How tasks are spread over slots.

use crate::{Error, TaskId};

/// The most slots.
pub(crate) const MOST_SLOTS: u16 = 1_024;

/// So many slots, since this epoch.
///
/// The keys of a slot are under one hash tag, so a Redis Cluster has them on one node. Which slot a task has depends on
/// its id and the number of slots only; another number is another epoch, with keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Layout {
    pub(crate) epoch: u64,
    pub(crate) slots: u16,
}

impl Layout {
    /// The slot of a task.
    pub(crate) fn slot(self, id: TaskId) -> Slot {
        let number = fnv(id.as_bytes()) % u64::from(self.slots.max(1));
        Slot {
            epoch: self.epoch,
            number: u16::try_from(number).unwrap_or(0),
        }
    }

    /// All of its slots.
    pub(crate) fn all(self) -> impl Iterator<Item = Slot> {
        let epoch = self.epoch;
        (0..self.slots).map(move |number| Slot { epoch, number })
    }
}

/// One slot of one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot {
    pub(crate) epoch: u64,
    pub(crate) number: u16,
}

impl Slot {
    /// The hash tag of this slot under a prefix: every key of it begins so.
    pub(crate) fn tag(self, prefix: &str) -> String {
        format!("{{{prefix}:{}:{}}}", self.epoch, self.number)
    }
}

/// Refuses a prefix that would change what is a hash tag, or cannot be typed.
pub(crate) fn check_prefix(prefix: &str) -> Result<(), Error> {
    let fits = (1..=100).contains(&prefix.len());
    if !fits || prefix.chars().any(|c| c.is_control() || c == '{' || c == '}') {
        return Err(Error::invalid(
            "redis key prefix",
            prefix,
            "allowed are 1 to 100 bytes without braces and control characters",
        ));
    }
    Ok(())
}

/// Refuses a number of slots that is none or too many.
pub(crate) fn check_slots(slots: u16) -> Result<(), Error> {
    if (1..=MOST_SLOTS).contains(&slots) {
        return Ok(());
    }
    Err(Error::invalid("redis slots", slots, "allowed are 1 to 1024"))
}

/// FNV-1a with 64 bits: the same for every release and language, since the slot of a task that is kept depends on it.
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // The vectors of its authors.
        assert_eq!(fnv(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn tasks_are_spread_evenly_and_stay_where_they_are() {
        let layout = Layout { epoch: 1, slots: 16 };
        let mut counts = [0_u32; 16];
        for number in 0..16_000_u128 {
            let id = TaskId::from_bytes((number << 13).to_be_bytes());
            counts[usize::from(layout.slot(id).number)] += 1;
        }
        for count in counts {
            assert!((700..1_300).contains(&count), "{counts:?}");
        }
        let id = TaskId::from_bytes(*b"0123456789abcdef");
        assert_eq!(layout.slot(id).number, 13, "where it was in the release before");
    }
}
