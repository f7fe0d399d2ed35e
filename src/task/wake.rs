//! Defines what travels through a backend.

use crate::{Kind, TaskId};

/// Says that it may be time to read a task's row, as that row was at one version.
///
/// It has no due time: the row has it. It is valid if, and only if, its version is still the row's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wake {
    /// The task to read.
    pub id: TaskId,
    /// Its kind, so that a worker knows without reading the row whether it has the handler.
    pub kind: Kind,
    /// The version of the row that it was sent for.
    pub version: u64,
}

/// The first byte of an encoded wake-up: the format's own mark, by which foreign bytes are recognised.
const FORMAT: u8 = 0xD1;

/// The mark, the id and the version.
const HEAD: usize = 1 + 16 + 8;

impl Wake {
    /// Encodes the wake-up: the mark `0xD1`, the 16 bytes of the id, the version (8 bytes, big endian), the kind in
    /// UTF-8.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEAD + self.kind.as_str().len());
        bytes.push(FORMAT);
        bytes.extend_from_slice(self.id.as_bytes());
        bytes.extend_from_slice(&self.version.to_be_bytes());
        bytes.extend_from_slice(self.kind.as_str().as_bytes());
        bytes
    }

    /// Decodes a wake-up, or returns none if `bytes` are not exactly one: a network may deliver anything.
    pub fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, kind) = bytes.split_at_checked(HEAD)?;
        if head[0] != FORMAT {
            return None;
        }
        let kind = Kind::from(std::str::from_utf8(kind).ok()?);
        kind.check().ok()?;
        let version = u64::from_be_bytes(head[17..].try_into().ok()?);
        // Stores keep the version in a signed 64-bit column.
        i64::try_from(version).ok()?;
        Some(Self {
            id: TaskId::from_bytes(head[1..17].try_into().ok()?),
            kind,
            version,
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(id: [u8; 16], version in 0..=i64::MAX as u64, kind in "[a-z.]{1,100}") {
            let wake = Wake { id: TaskId::from_bytes(id), kind: kind.as_str().into(), version };
            prop_assert_eq!(Wake::decode(&wake.encode()), Some(wake));
        }

        #[test]
        fn foreign_bytes_never_panic_and_are_refused_unless_they_are_exactly_a_wake(bytes: Vec<u8>) {
            if let Some(wake) = Wake::decode(&bytes) {
                prop_assert_eq!(wake.encode(), bytes);
            }
        }

        #[test]
        fn a_garbled_wake_is_refused(cut in 0..26_usize, flip in 1..=255_u8) {
            let wake = Wake { id: TaskId::from_bytes([7; 16]), kind: "k".into(), version: 3 };
            let mut bytes = wake.encode();
            prop_assert_eq!(Wake::decode(&bytes[..cut.min(25)]), None);
            bytes[0] ^= flip;
            prop_assert_eq!(Wake::decode(&bytes), None);
        }
    }
}
