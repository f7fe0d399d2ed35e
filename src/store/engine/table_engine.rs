//! Answers calls over one table: reads rows, has the rules decide, and writes. What is here is common to all calls; the files
//! beside it have a kind of call each.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use async_trait::async_trait;

use super::batch::Batch;
use super::reckoned::Reckoned;
use super::retry_window::{Queue, RetryWindow};
use super::share::Share;
use crate::clock::Clock;
use crate::store::keep::Stays;
use crate::store::merging::{AnswerBatch, Answers, AnswersAtOnce};
use crate::store::table::Table;
use crate::store::{Change, NewRow, Stamped, unanswered};
use crate::{Answer, Error, Scheduled, defaults};

/// A table, and what its calls have in common.
pub(in crate::store) struct TableEngine<T> {
    pub(super) table: T,
    pub(super) clock: Clock,
    /// For how long rows are kept that have ended.
    pub(super) stays: Arc<Stays>,
    /// For how long a call may take.
    pub(super) limit: Duration,
    /// Has calls that lost to a quicker one decide again one after the other.
    pub(super) queue: Queue,
    /// Of what workers were last answered.
    pub(super) time: Reckoned,
    /// Whether of two sorts of kinds the other one is claimed first next time.
    pub(super) other_first: AtomicBool,
    /// How many rows of each kind a sweep takes, and looks ahead at; and how many of each that is over are removed at once.
    pub(super) overdue: Share,
    pub(super) ahead: Share,
    pub(super) removed: Share,
}

impl<T> TableEngine<T> {
    pub(super) fn new(table: T, clock: Clock, stays: Arc<Stays>) -> Self {
        Self {
            table,
            clock,
            stays,
            limit: defaults::STORE_TIMEOUT,
            queue: Queue::default(),
            time: Reckoned::default(),
            other_first: AtomicBool::default(),
            overdue: Share::default(),
            ahead: Share::default(),
            removed: Share::default(),
        }
    }
}

impl<T: Table> TableEngine<T> {
    /// The same over another handle of the table.
    #[cfg(any(
        feature = "sqlite",
        feature = "postgres",
        feature = "mysql",
        feature = "redis"
    ))]
    pub(super) fn over<O>(&self, table: O) -> TableEngine<O> {
        TableEngine::new(table, self.clock.clone(), Arc::clone(&self.stays))
    }

    /// What a call gives; an error if it takes too long. Then what it was about to write is written or not.
    pub(super) async fn within<A>(&self, call: impl Future<Output = Result<A, Error>>) -> Result<A, Error> {
        let ended = self.clock.timeout(self.limit, call).await;
        ended.unwrap_or_else(|| Err(unanswered(self.table.name(), self.limit)))
    }

    /// What a call gives that takes shares of each kind: less the next time, if it takes too long.
    pub(super) async fn sharing<A>(
        &self,
        shares: &[&Share],
        call: impl Future<Output = Result<A, Error>>,
    ) -> Result<A, Error> {
        let began = self.clock.instant();
        let answer = call.await;
        // What fails at once, as where the store is away, says nothing of how much it was.
        if answer.is_err() && self.clock.instant() >= began + self.limit / 2 {
            shares.iter().for_each(|share| share.lessen());
        }
        answer
    }

    /// What a worker is answered, whose time is kept.
    pub(super) async fn heard<A>(
        &self,
        call: impl Future<Output = Result<Stamped<A>, Error>>,
    ) -> Result<Stamped<A>, Error> {
        let asked = self.clock.moment();
        let answer = self.within(call).await?;
        self.time.hear(answer.now, asked, &self.clock);
        Ok(answer)
    }

    /// A batch of which each that is not answered is asked for again, for a while.
    pub(super) fn batch<Q, A>(&self, asked: Vec<Q>, waits: bool) -> Batch<'_, Q, A> {
        Batch::new(asked, RetryWindow::new(&self.clock, &self.queue), waits)
    }

    /// As [`Store::insert`](crate::store::Store::insert).
    pub(super) async fn insert(&self, rows: Vec<NewRow>) -> Result<Answers<Scheduled>, Error> {
        let found = self.insert_batch(self.batch(rows, true)).await?;
        Ok(found.answered(self.table.name()))
    }

    /// As [`Store::change`](crate::store::Store::change).
    pub(super) async fn change(&self, changes: Vec<Change>) -> Result<Answers<Answer>, Error> {
        let found = self.change_batch(self.batch(changes, true)).await?;
        Ok(found.answered(self.table.name()))
    }
}

#[async_trait]
impl<T: Table + 'static> AnswerBatch<NewRow> for TableEngine<T> {
    type Answer = Scheduled;

    fn bytes_of(row: &NewRow) -> usize {
        row.bytes()
    }

    async fn answer_waiting(&self, rows: Vec<NewRow>) -> Result<Answers<Scheduled>, Error> {
        self.within(self.insert(rows)).await
    }

    async fn answer_at_once(&self, rows: Vec<NewRow>) -> Result<AnswersAtOnce<NewRow, Scheduled>, Error> {
        let batch = self.batch(rows, false);
        let found = self.within(self.insert_batch(batch)).await?;
        Ok(found.answered_at_once())
    }
}

#[async_trait]
impl<T: Table + 'static> AnswerBatch<Change> for TableEngine<T> {
    type Answer = Answer;

    fn bytes_of(change: &Change) -> usize {
        change.verb.bytes()
    }

    async fn answer_waiting(&self, changes: Vec<Change>) -> Result<Answers<Answer>, Error> {
        self.within(self.change(changes)).await
    }

    async fn answer_at_once(&self, changes: Vec<Change>) -> Result<AnswersAtOnce<Change, Answer>, Error> {
        let batch = self.batch(changes, false);
        let found = self.within(self.change_batch(batch)).await?;
        Ok(found.answered_at_once())
    }
}
