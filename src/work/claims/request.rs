//! What is asked for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use super::Claims;
use crate::work::claimant;
use crate::{Error, Kind, defaults};

/// What a caller wants to claim, of which every part can be used.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) claims: Claims,
    pub(super) kinds: BTreeSet<Kind>,
    pub(super) max: usize,
    pub(super) lease: Duration,
    pub(super) owner: Arc<str>,
}

impl Request {
    pub(super) fn new(
        claims: &Claims,
        kinds: &[Kind],
        max: usize,
        lease: Duration,
        owner: &str,
    ) -> Result<Self, Error> {
        if kinds.is_empty() {
            return Err(Error::invalid("kinds", "none", "allowed are one or more"));
        }
        for kind in kinds {
            kind.check()?;
            if claims.kernel.checks.contains_key(kind) {
                return Err(Error::invalid(
                    "kind",
                    kind,
                    "allowed are kinds without a check (SchedulerBuilder::follow), which only a worker asks",
                ));
            }
        }
        if !(1..=defaults::BATCH).contains(&max) {
            return Err(Error::invalid(
                "max",
                max,
                format!("allowed are 1 to {}", defaults::BATCH),
            ));
        }
        claimant::check_lease(lease)?;
        claimant::check_name("owner", owner)?;
        Ok(Self {
            claims: claims.clone(),
            kinds: kinds.iter().cloned().collect(),
            max,
            lease,
            owner: owner.into(),
        })
    }

    /// Whether one call of the store can claim for both, whose kinds are the same.
    pub(super) fn goes_with(&self, other: &Self) -> bool {
        self.owner == other.owner
            && self.lease == other.lease
            && Arc::ptr_eq(&self.claims.terms, &other.claims.terms)
    }
}
