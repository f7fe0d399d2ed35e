//! Changing many tasks at once.

use std::time::Duration;

use super::Scheduler;
use super::batches::each;
use crate::schedule::notes::Way;
use crate::store::{Action, Change, Expect, Target, Verb, When};
use crate::{Answer, Error, Kind};

impl Scheduler {
    /// Changes many tasks in few statements, each if it is as its `Expect` says (else `Conflict`, unless its state answers
    /// first); with an answer for each, in the order given: one that cannot be used or written keeps no other from it.
    ///
    /// ```
    /// use delayline::store::{Action, Expect, MemoryStore, Page};
    /// use delayline::{NewTask, Scheduler, State};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), delayline::Error> {
    /// let scheduler = Scheduler::new(MemoryStore::new());
    /// scheduler.schedule_all((0..5).map(|post| NewTask::new("post.publish", &post))).await?;
    ///
    /// // All that are due by now, but none that was moved meanwhile.
    /// let due = scheduler.list(&Page::new("post.publish", State::Scheduled)).await?;
    /// let cancels = due.iter().map(|task| (task.id.into(), Expect::Due(task.due_at), Action::Cancel));
    /// for answer in scheduler.change_each(cancels).await {
    ///     assert!(answer?.is_done());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub async fn change_each(
        &self,
        changes: impl IntoIterator<Item = (Target, Expect, Action)>,
    ) -> Vec<Result<Answer, Error>> {
        // First all of them: else the future would be as little `Send` as whatever they come from.
        let wanted: Vec<_> = changes.into_iter().collect();
        let needs_time =
            |action: Action| matches!(action, Action::Reschedule(When::At(_)) | Action::Shift(_));
        let time = self
            .time_for(wanted.iter().any(|&(_, _, action)| needs_time(action)))
            .await;
        let mut changes = Vec::with_capacity(wanted.len());
        for (target, expect, action) in wanted {
            let change = match &time {
                Err(error) if needs_time(action) => Err(error.once_more()),
                _ => self.planned_change(target, expect, action).await,
            };
            changes.push(change.map(|change| (action, change)));
        }
        each(changes, |_| 0, |batch| self.act(batch)).await
    }

    pub(super) async fn planned_change(
        &self,
        target: Target,
        expect: Expect,
        action: Action,
    ) -> Result<Change, Error> {
        target.check()?;
        let kind = self.kind_of(&target).await?;
        let kind = kind.as_ref();
        let now = When::After(Duration::ZERO);
        let (verb, note) = match action {
            Action::Cancel => (Verb::Cancel, self.note(kind, "cancelled", None)),
            Action::Dismiss => (Verb::Dismiss, self.note(kind, "dismissed", None)),
            Action::Reschedule(due) => self.reschedule_verb(kind, due).await?,
            Action::Shift(by) => {
                let Expect::Due(due_at) = expect else {
                    let allowed = "allowed with a shift is Expect::Due, the time from which it is moved";
                    return Err(Error::invalid("expect", format!("{expect:?}"), allowed));
                };
                let due = self.due_after(by, due_at).await?;
                self.reschedule_verb(kind, due).await?
            }
            Action::RunNow => {
                let Way { overdue_after, sent } = self.way(kind, now).await?;
                (Verb::RunNow { overdue_after }, self.note(kind, "run_now", sent))
            }
            Action::Redrive => {
                let Way { overdue_after, sent } = self.way(kind, now).await?;
                (Verb::Redrive { overdue_after }, self.note(kind, "redriven", sent))
            }
        };
        Ok(Change {
            target,
            verb,
            expect,
            note,
        })
    }

    /// The kind of a target. Of one by its id the store is asked only where it matters: where of some kinds other things are
    /// noted than of the rest.
    pub(super) async fn kind_of(&self, target: &Target) -> Result<Option<Kind>, Error> {
        match target {
            Target::Id(_) if !self.kernel.histories().are_alike() => {
                let found = self.kernel.store.find(target).await?;
                Ok(found.map(|task| task.kind))
            }
            target => Ok(target.kind().cloned()),
        }
    }
}
