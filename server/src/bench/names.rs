//! The names of what a run makes on servers, which nobody else has.

use std::sync::atomic::{AtomicUsize, Ordering};

/// What all names of a run begin with.
const PREFIX: &str = "delayline_bench_";

/// Gives each side a name of its own.
#[derive(Debug)]
pub(crate) struct Names {
    run: String,
    given: AtomicUsize,
}

impl Names {
    pub(crate) fn new() -> Self {
        Self {
            run: format!("{PREFIX}{:012x}", fastrand::u64(..1 << 48)),
            given: AtomicUsize::new(0),
        }
    }

    /// What all names of this run begin with.
    pub(crate) fn run(&self) -> &str {
        &self.run
    }

    pub(crate) fn next(&self) -> String {
        format!("{}_{}", self.run, self.given.fetch_add(1, Ordering::Relaxed))
    }
}

/// The ids of bare rows: in the order of time, which is where an index grows, as the library makes them.
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ids(u64);

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
impl Ids {
    pub(crate) fn new() -> Self {
        Self(super::ledger::now_micros().unsigned_abs() / 1_000)
    }

    pub(crate) fn of(self, number: usize) -> [u8; 16] {
        (u128::from(self.0) << 80 | number as u128).to_be_bytes()
    }
}
