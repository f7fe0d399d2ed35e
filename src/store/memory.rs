//! Keeps rows in this process's memory.

mod table;
#[cfg(all(test, feature = "testing"))]
mod tests;

use std::fmt;
use std::time::Duration;

pub(super) use self::table::MemoryTable;
use super::Engine;
use super::delegated::{delegate_store, unchanged};
use crate::clock::Clock;
use crate::{Timestamp, defaults};

/// Keeps rows in this process's memory: for tests and simulations, and for tasks that may end with the process.
///
/// A clone is another handle of the same rows. No lock is held across an await, and a call that no other is quicker than
/// ends at once; so it comes out the same way every time under a simulated clock.
///
/// ```
/// use std::time::Duration;
///
/// use delayline::Scheduler;
/// use delayline::store::MemoryStore;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = MemoryStore::new().keep_history(Duration::from_secs(3600));
/// let scheduler = Scheduler::new(store);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    engine: Engine<MemoryTable>,
    table: MemoryTable,
    clock: Clock,
    keep_history: Duration,
}

impl MemoryStore {
    /// An empty store that goes by the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(Clock::system())
    }

    /// An empty store that goes by `clock`.
    pub fn with_clock(clock: Clock) -> Self {
        let table = MemoryTable::new(clock.clone());
        Self::of(table, clock, defaults::HISTORY)
    }

    fn of(table: MemoryTable, clock: Clock, keep_history: Duration) -> Self {
        Self {
            engine: Engine::new(table.clone(), clock.clone(), keep_history),
            table,
            clock,
            keep_history,
        }
    }

    /// Returns when something is to happen next, after `now`: a task becomes due, or a lease ends. A test that turns a
    /// [`TestClock`](crate::clock::TestClock) also asks when [pauses](crate::Scheduler::paused) end: until the first of these a
    /// worker would find nothing to do.
    pub fn next_look(&self, now: Timestamp) -> Option<Timestamp> {
        self.table.next_look(now)
    }

    /// Keeps rows that this handle finishes or cancels for `history`; [`defaults::HISTORY`] otherwise.
    #[must_use]
    pub fn keep_history(self, history: Duration) -> Self {
        Self::of(self.table, self.clock, history)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore")
            .field("clock", &self.clock)
            .field("keep_history", &self.keep_history)
            .finish_non_exhaustive()
    }
}

delegate_store!(MemoryStore, engine, unchanged);
