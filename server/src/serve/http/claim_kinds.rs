//! The kinds of claims that this server has given.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use delayline::Kind;
use delayline::claims::{ClaimId, Claimed};

/// How many claims are remembered at least, the newest.
const REMEMBERED: usize = 10_000;

/// Remembers the kinds of claims, which say nothing of it themselves, so that most ends need not read their task.
#[derive(Debug, Default)]
pub(crate) struct ClaimKinds(Mutex<Generations>);

#[derive(Debug, Default)]
struct Generations {
    newer: HashMap<ClaimId, Kind>,
    older: HashMap<ClaimId, Kind>,
}

impl ClaimKinds {
    pub(super) fn remember(&self, claimed: &[Claimed]) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for Claimed { claim, task, .. } in claimed {
            if known.newer.len() >= REMEMBERED {
                known.older = std::mem::take(&mut known.newer);
            }
            known.newer.insert(*claim, task.kind.clone());
        }
    }

    pub(super) fn kind_of(&self, claim: ClaimId) -> Option<Kind> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known
            .newer
            .get(&claim)
            .or_else(|| known.older.get(&claim))
            .cloned()
    }
}
