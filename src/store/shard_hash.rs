//! Hashes a key or an id to the number that says in which shard of Redis its row is.
//!
//! A store that keeps its rows in shards wants a key and its row in one of them, and must find the row by its id, too. So
//! an id that is made for a task with a key ends with the number of that key. An id of another maker need not: it is as
//! good a name, only not as quick to find.

use crate::store::Paused;
use crate::store::fnv::{START, followed};
use crate::{Key, Kind, TaskId};

/// The number of a key.
pub(crate) fn of_key(kind: &Kind, key: &Key) -> u16 {
    of_kind(kind).unwrap_or_else(|| {
        let of_kind = followed(START, kind.as_str().as_bytes());
        folded(followed(followed(of_kind, &[0]), key.as_str().as_bytes()))
    })
}

/// The number of all keys of a kind, if they share one. Those of pauses do: each process reads all pauses up to twice a
/// second, while something is due, and starts nothing where it cannot. So it needs one server for that, and not all.
pub(crate) fn of_kind(kind: &Kind) -> Option<u16> {
    let number = || folded(followed(START, kind.as_str().as_bytes()));
    (kind.as_str() == Paused::KIND).then(number)
}

/// The number of an id: its last two bytes if it is a UUID of version 7, where they are chance or the number of a key; else
/// one of all of its bytes, of which some may be the same in all ids of one maker.
#[cfg(feature = "redis")]
pub(crate) fn of_id(id: TaskId) -> u16 {
    let bytes = id.as_bytes();
    match bytes[6] >> 4 {
        7 => u16::from_be_bytes([bytes[14], bytes[15]]),
        _ => folded(crate::store::fnv::fnv(bytes)),
    }
}

/// The id that is as good as `id`, a UUID of version 7, and has the number of this key.
pub(crate) fn id_with_key(id: TaskId, kind: &Kind, key: &Key) -> TaskId {
    let mut bytes = *id.as_bytes();
    bytes[14..].copy_from_slice(&of_key(kind, key).to_be_bytes());
    TaskId::from_bytes(bytes)
}

fn folded(hash: u64) -> u16 {
    let [a, b, c, d, e, f, g, h] = hash.to_be_bytes();
    u16::from_be_bytes([a ^ c ^ e ^ g, b ^ d ^ f ^ h])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_what_they_are() {
        // Reckoned by another program.
        assert_eq!(of_key(&"order.cancel".into(), &"order-1".into()), 43_824);
    }

    #[cfg(feature = "redis")]
    #[test]
    fn an_id_that_is_made_for_a_key_has_its_number() {
        let (kind, clock) = (Kind::from("order.cancel"), crate::clock::Clock::system());
        for number in 0..100 {
            let key = Key::from(number.to_string());
            let id = id_with_key(clock.new_id(), &kind, &key);
            assert_eq!(of_id(id), of_key(&kind, &key));
            assert_eq!(id.as_bytes()[6] >> 4, 7, "of the version that it was");
        }
    }

    #[cfg(feature = "redis")]
    #[test]
    fn ids_of_every_maker_are_shared_out_evenly() {
        let clock = crate::clock::Clock::system();
        let counted = |n: u128| TaskId::from_bytes(n.to_be_bytes());
        // With a node that is the same in all of them.
        let timed = |n: u128| {
            TaskId::from_bytes(((n << 96) | (1 << 76) | (2 << 62) | 0x1234_5678_9abc).to_be_bytes())
        };
        let made = |_| clock.new_id();
        let makers: [&dyn Fn(u128) -> TaskId; 3] = [&counted, &timed, &made];
        for make in makers {
            let mut counts = [0_u32; 16];
            for n in 0..16_000 {
                counts[usize::from(of_id(make(n))) % 16] += 1;
            }
            assert!(
                counts.iter().all(|count| (700..1_300).contains(count)),
                "{counts:?}"
            );
        }
    }
}
