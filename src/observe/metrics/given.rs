//! What was given to claimants.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use super::Stopwatch;
use crate::Kind;
use crate::task::claim_id::ClaimId;

/// How many claims are remembered.
const MOST: usize = 10_000;

/// Remembers of claims that are out of what kind each is, and since when: a claimant says no more than that it is done.
///
/// What was given by another process, or before so many others, is not known, and is told as of no kind in particular.
#[derive(Debug, Default)]
pub(super) struct Given(Mutex<Out>);

#[derive(Debug, Default)]
struct Out {
    claims: HashMap<ClaimId, (Kind, Stopwatch)>,
    /// In the order in which they were given; some may have ended.
    order: VecDeque<ClaimId>,
}

impl Given {
    /// A claim is given away.
    pub(super) fn add(&self, claim: ClaimId, kind: Kind, since: Stopwatch) {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Out { claims, order } = &mut *out;
        claims.insert(claim, (kind, since));
        order.push_back(claim);
        while claims.len() > MOST
            && let Some(oldest) = order.pop_front()
        {
            claims.remove(&oldest);
        }
        if order.len() > 2 * MOST {
            order.retain(|claim| claims.contains_key(claim));
        }
    }

    /// A claim has ended: of what kind it was, and since when.
    pub(super) fn take(&self, claim: ClaimId) -> Option<(Kind, Stopwatch)> {
        let mut out = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        out.claims.remove(&claim)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    fn claim(version: usize) -> ClaimId {
        let claim = format!("019aa0f6-9c00-7000-8000-000000000001.{version}");
        claim.parse().unwrap()
    }

    #[test]
    fn so_many_claims_are_remembered_and_each_once() {
        let (given, since) = (Given::default(), Stopwatch::start(&Clock::system()));
        let add = |version| given.add(claim(version), "k".into(), since);
        add(1);
        // However many others come and go meanwhile.
        for version in 2..3 * MOST {
            add(version);
            assert!(given.take(claim(version)).is_some());
            assert!(given.0.lock().unwrap().order.len() <= 2 * MOST);
        }
        assert_eq!(given.take(claim(1)), Some(("k".into(), since)));
        assert_eq!(given.take(claim(1)), None);
        let first = 3 * MOST;
        for version in first..=first + MOST {
            add(version);
        }
        assert_eq!(given.take(claim(first)), None, "the oldest is forgotten");
        assert!(given.take(claim(first + 1)).is_some());
    }
}
