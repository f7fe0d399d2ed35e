//! Makes a store of a table: reads rows, decides in memory what becomes of them, and writes those that are as they were.
//!
//! No lock is held while it decides: a row that another process was quicker with is read again, and decided anew. One that
//! another transaction keeps locked is asked for again: by a caller's call for seconds, by a worker's for a moment.

mod batch;
mod change;
mod claiming;
mod guarded;
mod insert;
mod loaded;
mod reading;
mod reckoned;
mod retry_window;
mod share;
mod sweep;
mod table_engine;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
mod transaction;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use self::table_engine::TableEngine;
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
use self::transaction::EngineTransaction;
use super::keep::Stays;
use super::merging::Merging;
use super::table::Table;
use super::{
    Change, Claim, Guarded, Keep, NewRow, Noted, Page, PollResult, Renewal, Stamped, Step, Store, Sweep,
    Target,
};
use crate::clock::Clock;
use crate::task::wake::Wake;
use crate::{Answer, Error, Kind, Scheduled, State, Task, TaskId, Timestamp};

/// Makes a [`Store`] of a [`Table`].
///
/// A clone is another handle of the same table.
pub struct Engine<T> {
    /// What callers ask for.
    callers: Arc<TableEngine<T>>,
    /// What workers do, which may have connections of its own.
    workers: Arc<TableEngine<T>>,
    inserts: Arc<Merging<NewRow, Scheduled>>,
    changes: Arc<Merging<Change, Answer>>,
}

impl<T: Table> Engine<T> {
    /// Keeps rows in `table`, those that are finished or cancelled for `history`. It pauses by `clock`; the times of rows are
    /// those of the table.
    pub fn new(table: T, clock: Clock, keep_history: Duration) -> Self {
        let stays = Arc::new(Stays::new(keep_history));
        let engine = Arc::new(TableEngine::new(table, clock, stays));
        Self::over(Arc::clone(&engine), engine)
    }

    fn over(callers: Arc<TableEngine<T>>, workers: Arc<TableEngine<T>>) -> Self {
        let (name, calls) = (callers.table.name(), callers.table.calls());
        Self {
            inserts: Arc::new(Merging::new(name, calls, callers.clock.clone())),
            changes: Arc::new(Merging::new(name, calls, callers.clock.clone())),
            callers,
            workers,
        }
    }

    /// The same over two handles of one table: one for what callers ask for, and one for what workers do, so that no crowd of
    /// callers keeps a worker from its claims.
    #[cfg(any(feature = "postgres", feature = "mysql"))]
    pub(super) fn beside(callers: T, workers: T, clock: &Clock, keep_history: Duration) -> Self {
        let stays = Arc::new(Stays::new(keep_history));
        let engine = |table| Arc::new(TableEngine::new(table, clock.clone(), Arc::clone(&stays)));
        Self::over(engine(callers), engine(workers))
    }

    /// Ends calls that take so long.
    #[cfg(any(feature = "redis", all(test, feature = "sqlite")))]
    pub(super) fn limit(&mut self, limit: Duration)
    where
        T: Clone,
    {
        let again = self.callers.over(self.callers.table.clone());
        let engine = Arc::new(TableEngine { limit, ..again });
        (self.callers, self.workers) = (Arc::clone(&engine), engine);
    }

    /// The same rules over a transaction that a service has opened in the table's database.
    #[cfg(any(feature = "sqlite", feature = "postgres", feature = "mysql"))]
    pub(super) fn join<O: Table>(&self, table: O) -> EngineTransaction<O> {
        EngineTransaction::new(self.callers.over(table))
    }
}

impl<T> Clone for Engine<T> {
    fn clone(&self) -> Self {
        Self {
            callers: Arc::clone(&self.callers),
            workers: Arc::clone(&self.workers),
            inserts: Arc::clone(&self.inserts),
            changes: Arc::clone(&self.changes),
        }
    }
}

impl<T: Table> fmt::Debug for Engine<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("table", &self.callers.table.name())
            .field("clock", &self.callers.clock)
            .field("keep_history", &self.callers.stays.usual)
            .finish_non_exhaustive()
    }
}

#[async_trait]
impl<T: Table + 'static> Store for Engine<T> {
    fn name(&self) -> &'static str {
        self.callers.table.name()
    }

    async fn now(&self) -> Result<Timestamp, Error> {
        self.workers.within(self.workers.table.now()).await
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Result<Stamped<Vec<Result<Scheduled, Error>>>, Error> {
        self.inserts.ask(&self.callers, rows).await
    }

    async fn change(&self, changes: Vec<Change>) -> Result<Stamped<Vec<Result<Answer, Error>>>, Error> {
        self.changes.ask(&self.callers, changes).await
    }

    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Result<Stamped<PollResult>, Error> {
        self.workers.heard(self.workers.arrive(wakes, claim)).await
    }

    async fn ready(&self, claim: &Claim) -> Result<Stamped<Vec<Task>>, Error> {
        self.workers.heard(self.workers.ready(claim)).await
    }

    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Result<Stamped<PollResult>, Error> {
        let engine = &*self.workers;
        let swept = engine.heard(engine.sweep(claim, sweep));
        engine.sharing(&[&engine.overdue, &engine.ahead], swept).await
    }

    async fn advance(&self, steps: &[Step]) -> Result<Vec<Guarded>, Error> {
        self.workers.within(self.workers.advance(steps)).await
    }

    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Result<Vec<Guarded>, Error> {
        self.workers.within(self.workers.renew(claims, lease)).await
    }

    async fn find(&self, target: &Target) -> Result<Option<Task>, Error> {
        self.callers.within(self.callers.find(target)).await
    }

    async fn list(&self, page: &Page) -> Result<Vec<Task>, Error> {
        self.callers.within(self.callers.list(page)).await
    }

    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Result<Vec<Kind>, Error> {
        self.callers
            .within(self.callers.table.kinds(state, after, limit))
            .await
    }

    async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
        most: usize,
    ) -> Result<Stamped<Vec<usize>>, Error> {
        let counted = self.callers.table.count(kind, state, spans, most);
        self.callers.within(counted).await
    }

    async fn history(&self, id: TaskId) -> Result<Noted, Error> {
        self.callers.within(self.callers.table.history(id)).await
    }

    async fn purge(&self, limit: usize) -> Result<u64, Error> {
        let engine = &*self.workers;
        let purged = engine.within(engine.purge(limit));
        engine.sharing(&[&engine.removed], purged).await
    }

    fn keep(&self, kinds: &Arc<BTreeMap<Kind, Keep>>) {
        self.callers.stays.set(kinds);
    }

    async fn check(&self) -> Result<(), Error> {
        self.workers.within(self.workers.table.check()).await
    }

    async fn notified(&self) {
        self.workers.table.notified().await;
    }
}

#[cfg(test)]
mod tests;
