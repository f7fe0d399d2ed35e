//! The verbs within a transaction of the service's own.

use super::revising::Revision;
use super::scheduling::VERB;
use crate::observe::metrics;
use crate::store::Receipt;
use crate::store::only;
use crate::store::receipt::Follow;
use crate::store::{Action, Change, Expect, Target, Transaction, When};
use crate::{Answer, Error, NewTask, Scheduled, Scheduler, Shift};

/// Verbs within a transaction that the service has opened: what they do happens when it commits, or not at all.
///
/// `transaction` is made by the `join` of the store that this scheduler has, from the connection of the service's
/// transaction on the same database. After the commit the receipt is given to [`committed`](Scheduler::committed).
impl Scheduler {
    /// [`schedule`](Self::schedule) within a transaction.
    pub async fn schedule_in(
        &self,
        transaction: impl Transaction,
        task: NewTask,
    ) -> Result<Receipt<Scheduled>, Error> {
        let receipt = self.schedule_all_in(transaction, [task]).await?;
        receipt.try_map(only)
    }

    /// [`schedule_all`](Self::schedule_all) within a transaction, as one batch.
    pub async fn schedule_all_in(
        &self,
        mut transaction: impl Transaction,
        tasks: impl IntoIterator<Item = NewTask>,
    ) -> Result<Receipt<Vec<Scheduled>>, Error> {
        let rows = self.rows(tasks).await?;
        let heard = self.kernel.time.of(transaction.insert(rows)).await?;
        for scheduled in &heard.found {
            metrics::verb(VERB, scheduled.word(), 1);
        }
        let follow = Follow::scheduled(&heard, heard.found.iter());
        Ok(Receipt::new(heard.found, follow))
    }

    /// [`reschedule`](Self::reschedule) within a transaction.
    pub async fn reschedule_in(
        &self,
        transaction: impl Transaction,
        target: impl Into<Target>,
        due: impl Into<When>,
    ) -> Result<Receipt<Answer>, Error> {
        let action = Action::Reschedule(due.into());
        self.act_in(transaction, target.into(), action).await
    }

    /// [`shift`](Self::shift) within a transaction.
    pub async fn shift_in(
        &self,
        transaction: impl Transaction,
        target: impl Into<Target>,
        by: Shift,
    ) -> Result<Receipt<Answer>, Error> {
        let target = target.into();
        target.check()?;
        let receipt = self.revise_in(transaction, &target, Revision::Shift(by)).await?;
        metrics::verb(Action::Shift(by).verb(), receipt.answer().word(), 1);
        Ok(receipt)
    }

    /// [`cancel`](Self::cancel) within a transaction.
    pub async fn cancel_in(
        &self,
        transaction: impl Transaction,
        target: impl Into<Target>,
    ) -> Result<Receipt<Answer>, Error> {
        self.act_in(transaction, target.into(), Action::Cancel).await
    }

    /// [`run_now`](Self::run_now) within a transaction.
    pub async fn run_now_in(
        &self,
        transaction: impl Transaction,
        target: impl Into<Target>,
    ) -> Result<Receipt<Answer>, Error> {
        self.act_in(transaction, target.into(), Action::RunNow).await
    }

    /// Sends the wake-ups that follow from a transaction, which has committed; gives the answer.
    pub async fn committed<A>(&self, receipt: Receipt<A>) -> A {
        let (answer, follow) = receipt.into_parts();
        self.kernel.follow(follow).await;
        answer
    }

    async fn act_in(
        &self,
        transaction: impl Transaction,
        target: Target,
        action: Action,
    ) -> Result<Receipt<Answer>, Error> {
        let change = self.planned_change(target, Expect::Anything, action).await?;
        let receipt = self.change_in(transaction, change).await?;
        metrics::verb(action.verb(), receipt.answer().word(), 1);
        Ok(receipt)
    }

    pub(super) async fn change_in(
        &self,
        mut transaction: impl Transaction,
        change: Change,
    ) -> Result<Receipt<Answer>, Error> {
        let heard = self.kernel.time.of(transaction.change(vec![change])).await?;
        let follow = Follow::changed(&heard, heard.found.iter());
        Ok(Receipt::new(only(heard.found)?, follow))
    }
}
