//! Encodes a wake-up as a member of a ZSET.

use crate::backend::Wake;
use crate::store::fnv::fnv;
use crate::{Kind, TaskId};

/// The id and the number of the kind.
const HEAD: usize = 16 + 4;
/// The most that a version takes.
const VERSION: usize = 8;

/// Stands for the name of a kind in members: 32 bits of its FNV-1a hash, big endian.
///
/// Two kinds may have the same. Then a wake-up may name the other one, which costs precision at most: the row has the
/// kind that counts.
pub(super) type KindNumber = [u8; 4];

pub(super) fn number(kind: &Kind) -> KindNumber {
    let [.., a, b, c, d] = fnv(kind.as_str().as_bytes()).to_be_bytes();
    [a, b, c, d]
}

/// 16 bytes of id, 4 bytes of [`KindNumber`], and the version in as few bytes as it takes, at least 1, big endian.
///
/// Up to version 65,535 that is 22 bytes, which a server keeps in as much memory as the id alone (measured on Redis 7.0:
/// both take 24).
#[derive(Clone, Copy, Debug)]
pub(super) struct Member {
    bytes: [u8; HEAD + VERSION],
    length: usize,
}

impl Member {
    pub(super) fn of(wake: &Wake) -> Self {
        let version = wake.version.to_be_bytes();
        let zeros = version.iter().take(VERSION - 1).take_while(|byte| **byte == 0);
        let short = &version[zeros.count()..];
        let length = HEAD + short.len();
        let mut bytes = [0; HEAD + VERSION];
        bytes[..16].copy_from_slice(wake.id.as_bytes());
        bytes[16..HEAD].copy_from_slice(&number(&wake.kind));
        bytes[HEAD..length].copy_from_slice(short);
        Self { bytes, length }
    }
}

impl AsRef<[u8]> for Member {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// Decodes the id, the kind's number and the version; none unless the bytes are exactly a [`Member`].
pub(super) fn decode(member: &[u8]) -> Option<(TaskId, KindNumber, u64)> {
    let (head, short) = member.split_at_checked(HEAD)?;
    let (id, kind) = head.split_at_checked(16)?;
    let is_shortest = short.len() == 1 || short.first().is_some_and(|byte| *byte > 0);
    if !is_shortest || short.len() > 8 {
        return None;
    }
    let mut version = [0; 8];
    version[8 - short.len()..].copy_from_slice(short);
    let version = u64::from_be_bytes(version);
    // Stores keep the version in a signed 64-bit column.
    i64::try_from(version).ok()?;
    Some((
        TaskId::from_bytes(id.try_into().ok()?),
        kind.try_into().ok()?,
        version,
    ))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(id: [u8; 16], shift in 0..63_u32, kind in "[a-z.]{1,100}") {
            let version = (i64::MAX as u64) >> shift;
            let wake = Wake { id: TaskId::from_bytes(id), kind: kind.as_str().into(), version };
            let decoded = decode(Member::of(&wake).as_ref());
            prop_assert_eq!(decoded, Some((wake.id, number(&wake.kind), version)));
        }

        #[test]
        fn foreign_bytes_are_refused_unless_they_are_exactly_a_member(bytes in prop::collection::vec(any::<u8>(), 0..32)) {
            if let Some((id, _, version)) = decode(&bytes) {
                let wake = Wake { id, kind: "k".into(), version };
                let mut encoded = Member::of(&wake).as_ref().to_vec();
                encoded[16..20].copy_from_slice(&bytes[16..20]);
                prop_assert_eq!(encoded, bytes);
            }
        }
    }

    #[test]
    fn a_member_is_as_small_as_promised() {
        let length = |version| {
            let id = TaskId::from_bytes([7; 16]);
            let wake = Wake {
                id,
                kind: "order.cancel".into(),
                version,
            };
            Member::of(&wake).as_ref().len()
        };
        assert_eq!(
            [length(0), length(255), length(256), length(65_535)],
            [21, 21, 22, 22]
        );
    }

    #[test]
    fn versions_that_no_store_has_are_refused() {
        let mut member = vec![7; 20];
        member.extend_from_slice(&u64::MAX.to_be_bytes());
        assert_eq!(decode(&member), None);
        let mut member = vec![7; 20];
        member.extend_from_slice(&[0, 1]);
        assert_eq!(decode(&member), None, "a version is written in one way only");
    }
}
