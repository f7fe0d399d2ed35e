//! What a claim is known by.

/// The bits for the end of the lease: enough for ms until the year 10889.
const END_BITS: u32 = 48;

/// The low 16 bits of the epoch, and when the lease ends (ms, the clock of the slot's server), which no other claim of the
/// same wake-up has.
pub(super) fn pack(epoch: u64, lease_end: u64) -> u64 {
    epoch << END_BITS | lease_end & ((1 << END_BITS) - 1)
}

/// The end of the lease, if the ticket is of this epoch.
pub(super) fn lease_end(ticket: u64, epoch: u64) -> Option<u64> {
    let lease_end = ticket & ((1 << END_BITS) - 1);
    (pack(epoch, lease_end) == ticket).then_some(lease_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_is_for_its_epoch_only() {
        let ticket = pack(3, 1_763_782_345_678);
        assert_eq!(lease_end(ticket, 3), Some(1_763_782_345_678));
        assert_eq!(lease_end(ticket, 4), None);
    }
}
