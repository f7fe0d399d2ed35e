//! FNV-1a with 64 bits: the same for every release and language, as where things are that are kept depends on it.

/// The hash of nothing.
pub(crate) const START: u64 = 0xcbf2_9ce4_8422_2325;

/// The hash of these bytes.
#[cfg(feature = "redis")]
pub(crate) fn fnv(bytes: &[u8]) -> u64 {
    followed(START, bytes)
}

/// The hash of what has this hash, followed by these bytes.
pub(crate) fn followed(hash: u64, bytes: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(hash, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // The vectors of its authors.
        assert_eq!(followed(START, b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(followed(START, b"foobar"), 0x8594_4171_f739_67e8);
    }
}
