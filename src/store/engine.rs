//! Makes a store of a table: reads rows, decides in memory what becomes of them, and writes those that are as they were.
//!
//! No lock is held while it decides: a row that somebody else was quicker with is read again, and decided anew. One that
//! another transaction keeps locked is asked for again by a caller's call, and left to the sweep by a worker's.

mod batch;
mod change;
mod decider;
mod guarded;
mod insert;
mod loaded;
mod look;
mod patience;
mod sweep;
#[cfg(feature = "sqlite")]
mod transaction;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::decider::Decider;
#[cfg(feature = "sqlite")]
use self::transaction::Joined;
use super::merging::Merging;
use super::table::Table;
use super::{
    Change, Claim, Guarded, Looked, NewRow, Noted, Page, Renewal, Stamped, Step, Store, Sweep, Target,
};
use crate::backend::Wake;
use crate::clock::Clock;
use crate::{Answer, Error, Kind, Scheduled, State, Task, TaskId, Timestamp, defaults};

/// Makes a [`Store`] of a [`Table`].
///
/// A clone is another handle of the same table.
pub struct Engine<T> {
    decider: Arc<Decider<T>>,
    merging: Arc<Merging>,
}

impl<T: Table> Engine<T> {
    /// Keeps rows in `table`, those that are finished or cancelled for `history`. It pauses by `clock`; the times of rows are
    /// those of the table.
    pub fn new(table: T, clock: Clock, history: Duration) -> Self {
        let limit = defaults::STORE_TIMEOUT;
        let decider = Decider {
            table,
            clock,
            history,
            limit,
        };
        Self {
            decider: Arc::new(decider),
            merging: Arc::default(),
        }
    }

    /// What a call gives; an error if it takes too long.
    async fn within<A>(&self, call: impl Future<Output = Result<A, Error>>) -> Result<A, Error> {
        self.decider.within(call).await
    }

    /// Ends calls that take so long.
    #[cfg(all(test, feature = "sqlite"))]
    pub(super) fn limit(&mut self, limit: Duration) {
        Arc::get_mut(&mut self.decider).expect("the only handle").limit = limit;
    }

    /// The same rules over a transaction that somebody has opened in the table's database.
    #[cfg(feature = "sqlite")]
    pub(super) fn join<O: Table>(&self, table: O) -> Joined<O> {
        Joined::new(Decider {
            table,
            clock: self.decider.clock.clone(),
            history: self.decider.history,
            limit: self.decider.limit,
        })
    }
}

impl<T> Clone for Engine<T> {
    fn clone(&self) -> Self {
        Self {
            decider: Arc::clone(&self.decider),
            merging: Arc::clone(&self.merging),
        }
    }
}

impl<T: Table> fmt::Debug for Engine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("table", &self.decider.table.name())
            .field("clock", &self.decider.clock)
            .field("history", &self.decider.history)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl<T: Table + 'static> Store for Engine<T> {
    fn name(&self) -> &'static str {
        self.decider.table.name()
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.within(self.decider.table.now()).await
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        match self.decider.table.calls() {
            Some(_) => self.merging.insert(&self.decider, rows).await,
            None => self.within(self.decider.insert(rows)).await,
        }
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        let history = self.decider.history;
        match self.decider.table.calls() {
            Some(_) => self.merging.change(&self.decider, changes, history).await,
            None => self.within(self.decider.change(changes)).await,
        }
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<Looked>, Error> {
        self.within(self.decider.arrive(wakes, claim)).await
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        self.within(self.decider.ready(claim)).await
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<Looked>, Error> {
        self.within(self.decider.sweep(claim, sweep)).await
    }

    async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
        self.within(self.decider.advance(steps)).await
    }

    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        self.within(self.decider.renew(claims, lease)).await
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        self.within(self.decider.find(target)).await
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        self.within(self.decider.list(page)).await
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        self.within(self.decider.table.kinds(state, after, limit)).await
    }

    async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let counted = self.decider.table.count(kind, state, spans, most);
        self.within(counted).await
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        self.within(self.decider.table.history(id)).await
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        self.within(self.decider.purge(limit)).await
    }

    async fn check(&self) -> Result<(), Error> {
        self.within(self.decider.table.check()).await
    }

    async fn notified(&self) {
        self.decider.table.notified().await;
    }
}

#[cfg(test)]
mod tests;
