//! How often somebody may try to sign in.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How many wrong tokens come from an address within this time.
const MOST: usize = 10;
const WITHIN: Duration = Duration::from_secs(60);
/// How many wrong tokens are remembered, of all addresses.
const KNOWN: usize = 10_000;

/// Counts the wrong tokens of each address: after some of them it has to wait, whatever it says.
#[derive(Debug, Default)]
pub(super) struct Patience(Mutex<VecDeque<(IpAddr, Instant)>>);

impl Patience {
    pub(super) fn is_over(&self, address: IpAddr, now: Instant) -> bool {
        let mut wrong = self.wrong();
        while wrong.front().is_some_and(|(_, at)| *at + WITHIN <= now) {
            wrong.pop_front();
        }
        let address = network(address);
        wrong.iter().filter(|(from, _)| *from == address).count() >= MOST
    }

    pub(super) fn add(&self, address: IpAddr, now: Instant) {
        let mut wrong = self.wrong();
        if wrong.len() == KNOWN {
            wrong.pop_front();
        }
        wrong.push_back((network(address), now));
    }

    fn wrong(&self) -> MutexGuard<'_, VecDeque<(IpAddr, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one client has for itself: of IPv6 the first half.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::from([a, b, c, d, 0, 0, 0, 0])
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_waits_after_some_wrong_tokens_and_others_do_not() {
        let (patience, begin) = (Patience::default(), Instant::now());
        let [one, beside, other] =
            ["2001:db8::1", "2001:db8::2", "192.0.2.1"].map(|address| address.parse().unwrap());
        for _ in 0..MOST {
            assert!(!patience.is_over(one, begin));
            patience.add(one, begin);
        }
        assert!(patience.is_over(one, begin));
        assert!(patience.is_over(beside, begin), "it may be the same client");
        assert!(!patience.is_over(other, begin));
        assert!(!patience.is_over(one, begin + WITHIN));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let patience = Patience::default();
        for _ in 0..KNOWN + 1 {
            patience.add([192, 0, 2, 1].into(), Instant::now());
        }
        assert_eq!(patience.wrong().len(), KNOWN);
    }
}
