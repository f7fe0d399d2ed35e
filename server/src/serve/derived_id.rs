//! Ids that say themselves whether a request is one that came before.

use delayline::TaskId;
use sha2::{Digest as _, Sha256};

/// The id that these parts, and the place of a task among those of its request, always stand for: a UUID of version 8, the
/// SHA-256 of all that.
pub(super) fn derived_id(parts: [&[u8]; 2], place: &[u8]) -> TaskId {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update(part.len().to_be_bytes());
        hash.update(part);
    }
    hash.update(place);
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash.finalize()[..16]);
    TaskId::from(uuid::Uuid::new_v8(bytes))
}
