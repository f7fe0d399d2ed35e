//! What all claims of a scheduler share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::guarded_writes::GuardedWrites;
use super::line::Lines;
use crate::clock::Clock;
use crate::store::{Renewal, Step, Store};

/// The callers who wait for due tasks, and the ends and renewals that are on their way.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) lines: Lines,
    pub(super) ends: GuardedWrites<Step>,
    pub(super) renewals: GuardedWrites<(Renewal, Duration)>,
    turn: AtomicUsize,
}

impl Shared {
    /// Within a runtime.
    pub(super) fn start(store: &Arc<dyn Store>, clock: &Clock) -> Self {
        Self {
            lines: Lines::default(),
            ends: GuardedWrites::of_ends(Arc::clone(store), clock),
            renewals: GuardedWrites::of_renewals(Arc::clone(store), clock),
            turn: AtomicUsize::new(0),
        }
    }

    /// Another number for each take.
    pub(super) fn next_turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }
}
