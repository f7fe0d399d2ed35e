//! Another payload for a task that waits.

use super::Scheduler;
use super::answer_label;
use super::revising::Revision;
use crate::observe::metrics;
use crate::schedule::notes::Way;
use crate::store::{Change, Expect, Receipt, Target, Transaction, Verb, When, only};
use crate::{Answer, Edit, Error};

/// What it is called where verbs are counted.
const VERB: &str = "edit";

impl Scheduler {
    /// Gives a task that waits another payload. Its time, headers, attempts and all else stay as they are, also where it is
    /// moved at the same moment; if the edit has a time of its own, it is moved there in the same step, as by
    /// [`reschedule`](Self::reschedule).
    ///
    /// After [`Answer::Done`] no handler starts with the payload from before.
    pub async fn edit(&self, target: impl Into<Target>, edit: Edit) -> Result<Answer, Error> {
        self.edit_if(target, Expect::Anything, edit).await
    }

    /// As [`edit`](Self::edit), if the task is as `expect` says; else `Conflict`, unless its state answers first.
    pub async fn edit_if(
        &self,
        target: impl Into<Target>,
        expect: Expect,
        edit: Edit,
    ) -> Result<Answer, Error> {
        let target = target.into();
        let (payload, due) = self.checked(&target, edit)?;
        let answer = match due {
            None => self.revise(&target, expect, Revision::Payload(&payload)).await,
            Some(due) => {
                let change = self.moved_edit(target, expect, payload, due).await?;
                self.change_batch(vec![change])
                    .await
                    .and_then(only)
                    .and_then(|answer| answer)
            }
        };
        metrics::verb(VERB, answer_label(&answer), 1);
        answer
    }

    /// [`edit`](Self::edit) within a transaction.
    pub async fn edit_in(
        &self,
        transaction: impl Transaction,
        target: impl Into<Target>,
        edit: Edit,
    ) -> Result<Receipt<Answer>, Error> {
        let target = target.into();
        let (payload, due) = self.checked(&target, edit)?;
        let receipt = match due {
            None => {
                let revision = Revision::Payload(&payload);
                self.revise_in(transaction, &target, revision).await?
            }
            Some(due) => {
                let change = self.moved_edit(target, Expect::Anything, payload, due).await?;
                self.change_in(transaction, change).await?
            }
        };
        metrics::verb(VERB, receipt.answer().word(), 1);
        Ok(receipt)
    }

    /// What of an edit can be used.
    fn checked(&self, target: &Target, edit: Edit) -> Result<(Vec<u8>, Option<When>), Error> {
        target.check()?;
        edit.due.map_or(Ok(()), When::check)?;
        let kind = target.kind().map_or("edited", |kind| kind.as_str());
        Ok((self.checked_payload(kind, edit.payload)?, edit.due))
    }

    /// The change to another payload and another time: whatever the time is by then.
    async fn moved_edit(
        &self,
        target: Target,
        expect: Expect,
        payload: Vec<u8>,
        due: When,
    ) -> Result<Change, Error> {
        let kind = self.kind_of(&target).await?;
        let Way { overdue_after, sent } = self.way(kind.as_ref(), due).await?;
        let note = self.note(kind.as_ref(), "edited", sent);
        Ok(Change {
            target,
            verb: Verb::Edit {
                payload,
                due: Some(due),
                overdue_after,
            },
            expect,
            note,
        })
    }
}
