//! Verbs that need to know the task first: it is read, and changed if it is still due then.

use std::time::Duration;

use super::Scheduler;
use crate::schedule::notes::Way;
use crate::store::receipt::Follow;
use crate::store::{Change, Expect, Receipt, Target, Transaction, Verb, When, only};
use crate::{Answer, Error, Shift, Task, Timestamp};

/// How often a task is looked at again that others move at the same time, within a transaction of the service's own: it
/// holds locks meanwhile, so not for ever.
const TRIES: usize = 5;

/// What is made of a task as it is.
#[derive(Clone, Copy)]
pub(super) enum Revision<'r> {
    /// It is due so much later or earlier.
    Shift(Shift),
    /// It has this payload, and is due as before.
    Payload(&'r [u8]),
}

impl Scheduler {
    /// Revises a task if it is as `expect` says, however often others move it meanwhile.
    pub(super) async fn revise(
        &self,
        target: &Target,
        expect: Expect,
        revision: Revision<'_>,
    ) -> Result<Answer, Error> {
        loop {
            let found = self.kernel.store.find(target).await?;
            let Some(change) = self.revised(found, expect, revision).await? else {
                return Ok(Answer::NotFound);
            };
            match only(self.change_batch(vec![change]).await?)?? {
                // Another caller moved it in between: read again.
                Answer::Conflict(_) if expect == Expect::Anything => {}
                answer => return Ok(answer),
            }
        }
    }

    /// The same within a transaction.
    pub(super) async fn revise_in(
        &self,
        mut transaction: impl Transaction,
        target: &Target,
        revision: Revision<'_>,
    ) -> Result<Receipt<Answer>, Error> {
        let mut tries = 1;
        loop {
            let found = transaction.find(target).await?;
            let Some(change) = self.revised(found, Expect::Anything, revision).await? else {
                return Ok(Receipt::new(Answer::NotFound, Follow::default()));
            };
            let receipt = self.change_in(&mut transaction, change).await?;
            if tries == TRIES || !matches!(receipt.answer(), Answer::Conflict(_)) {
                return Ok(receipt);
            }
            tries += 1;
        }
    }

    /// Makes the change that revises a task as it was found; none if it was not. Whether it may be made is for the store to
    /// say, as of every verb: only the store knows whether the lease of a running task has ended.
    async fn revised(
        &self,
        found: Option<Task>,
        expect: Expect,
        revision: Revision<'_>,
    ) -> Result<Option<Change>, Error> {
        let Some(task) = found else {
            return Ok(None);
        };
        let (due_at, expect) = match expect {
            // The due time, not the version: a hop on the way is no conflict.
            Expect::Anything => (task.due_at, Expect::Due(task.due_at)),
            Expect::Version(_) => (task.due_at, expect),
            Expect::Due(due_at) => (due_at, expect),
        };
        let (verb, note) = match revision {
            Revision::Shift(by) => {
                let due = self.due_after(by, due_at).await?;
                self.reschedule_verb(Some(&task.kind), due).await?
            }
            Revision::Payload(payload) => {
                let Way { overdue_after, sent } = self.way(Some(&task.kind), When::At(due_at)).await?;
                let verb = Verb::Edit {
                    payload: payload.to_vec(),
                    due: None,
                    overdue_after,
                };
                (verb, self.note(Some(&task.kind), "edited", sent))
            }
        };
        Ok(Some(Change {
            target: Target::Id(task.id),
            verb,
            expect,
            note,
        }))
    }

    /// When a task is due that is moved by a time span.
    pub(super) async fn due_after(&self, by: Shift, due_at: Timestamp) -> Result<When, Error> {
        let moved = by.from(due_at);
        When::At(moved).check()?;
        Ok(
            match self.kernel.time.has_passed(moved, &*self.kernel.store).await? {
                // Deadlines and lateness count from the due time: one in the past would use them up.
                true => When::After(Duration::ZERO),
                false => When::At(moved),
            },
        )
    }
}
