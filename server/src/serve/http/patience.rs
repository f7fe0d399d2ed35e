//! How often an address may send tokens that are not known.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How many wrong tokens of an address are answered one by one within this time.
const MOST: u32 = 10;
const WITHIN: Duration = Duration::from_secs(60);
/// Of how many addresses wrong tokens are counted at once.
const KNOWN: usize = 10_000;

/// Counts the wrong tokens of each address.
#[derive(Debug, Default)]
pub(super) struct Patience(Mutex<HashMap<IpAddr, Wrong>>);

/// The wrong tokens that an address has sent since a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wrong {
    since: Instant,
    count: u32,
}

impl Wrong {
    pub(super) fn is_too_often(self) -> bool {
        self.count > MOST
    }

    pub(super) fn is_first_of_too_many(self) -> bool {
        self.count == MOST + 1
    }
}

impl Patience {
    /// Counts one more wrong token; gives all of its address within a minute, this one included.
    pub(super) fn add(&self, address: IpAddr, now: Instant) -> Wrong {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let address = network(address);
        if known.len() >= KNOWN && !known.contains_key(&address) {
            known.retain(|_, wrong| now < wrong.since + WITHIN);
            if known.len() >= KNOWN {
                // So many addresses at once have one sender, who has more of them than can be counted.
                known.clear();
            }
        }
        let begin = Wrong { since: now, count: 0 };
        let wrong = known.entry(address).or_insert(begin);
        if now >= wrong.since + WITHIN {
            *wrong = begin;
        }
        wrong.count = wrong.count.saturating_add(1);
        *wrong
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
            assert!(!patience.add(one, begin).is_too_often());
        }
        let over = patience.add(beside, begin);
        assert!(over.is_too_often(), "it may be the same client");
        assert!(over.is_first_of_too_many());
        assert!(!patience.add(one, begin).is_first_of_too_many());
        assert!(!patience.add(other, begin).is_too_often());
        assert!(!patience.add(one, begin + WITHIN).is_too_often());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (patience, now) = (Patience::default(), Instant::now());
        for at in 0..=u32::try_from(KNOWN).unwrap() {
            patience.add(IpAddr::V4(at.into()), now);
        }
        assert_eq!(patience.0.lock().unwrap().len(), 1);
        patience.add([192, 0, 2, 1].into(), now + WITHIN);
        assert_eq!(patience.0.lock().unwrap().len(), 2);
    }
}
