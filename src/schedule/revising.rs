//! Verbs that go by what the task is like: it is read, and changed if it is still so.

use std::time::Duration;

use super::Scheduler;
use crate::schedule::noting::Way;
use crate::store::receipt::Follow;
use crate::store::{Change, Expect, Receipt, Target, Transaction, Verb, When, only};
use crate::{Answer, Error, Shift, State, Task, Timestamp};

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
            let change = match self.revised(found, expect, revision).await? {
                Ok(change) => change,
                Err(answer) => return Ok(answer),
            };
            match only(self.change_batch(vec![change]).await?)?? {
                // Another caller moved it in between: read again, by the caller's own expectation.
                Answer::Conflict(_) => {}
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
            let change = match self.revised(found, Expect::Anything, revision).await? {
                Ok(change) => change,
                Err(answer) => return Ok(Receipt::new(answer, Follow::default())),
            };
            let receipt = self.change_in(&mut transaction, change).await?;
            if tries == TRIES || !matches!(receipt.answer(), Answer::Conflict(_)) {
                return Ok(receipt);
            }
            tries += 1;
        }
    }

    /// The change that revises a task as it was found; or the answer, if there is nothing to revise.
    async fn revised(
        &self,
        found: Option<Task>,
        expect: Expect,
        revision: Revision<'_>,
    ) -> Result<Result<Change, Answer>, Error> {
        let Some(task) = found else {
            return Ok(Err(Answer::NotFound));
        };
        match task.state {
            State::Scheduled => {}
            State::Running => return Ok(Err(Answer::TooLate(task))),
            State::Done | State::Dead | State::Cancelled => return Ok(Err(Answer::Finished(task))),
        }
        if !expect.holds(&task) {
            return Ok(Err(Answer::Conflict(task)));
        }
        let read = match expect {
            Expect::Version(_) => expect,
            // The due time, not the version: a hop on the way is no conflict.
            Expect::Anything | Expect::Due(_) => Expect::Due(task.due_at),
        };
        let (verb, note) = match revision {
            Revision::Shift(by) => {
                let due = self.due_after(by, task.due_at).await?;
                self.reschedule_verb(Some(&task.kind), due).await?
            }
            Revision::Payload(payload) => {
                let Way { look_in, sent } = self.way(Some(&task.kind), When::At(task.due_at)).await?;
                let verb = Verb::Edit {
                    payload: payload.to_vec(),
                    due: None,
                    look_in,
                };
                (verb, self.note(Some(&task.kind), "edited", sent))
            }
        };
        Ok(Ok(Change {
            target: Target::Id(task.id),
            verb,
            expect: read,
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
