//! Finds the task that a message is about, and what messages have done to it.

use delayline::history::Entry;
use delayline::store::{Expect, Target};
use delayline::{Error, Scheduler, Task};

use super::origin::Origin;

/// The header of a task that says which message made it.
pub(super) const ORIGIN: &str = "DELAYLINE_ORIGIN";

/// A task, as a message found it.
pub(super) struct FoundTask {
    pub(super) task: Task,
    /// The message that made it, if one did.
    made_by: Option<Origin>,
    /// The last message that made or changed it.
    last: Option<Origin>,
    /// Whether the message by which it was found has changed it already.
    pub(super) is_done: bool,
}

impl FoundTask {
    /// Finds the task of a target, as it matters to the message from `origin`.
    pub(super) async fn find(
        scheduler: &Scheduler,
        target: &Target,
        origin: &Origin,
    ) -> Result<Option<Self>, Error> {
        let Some(task) = scheduler.find(target.clone()).await? else {
            return Ok(None);
        };
        let known = Self::made(task);
        if known.is_past(origin) || known.is_as_made() {
            return Ok(Some(known));
        }
        let found = scheduler.history(known.task.id).await?;
        Ok(found.map(|(task, history)| Self::made(task).changed(&history, origin)))
    }

    fn made(task: Task) -> Self {
        let origin: Option<Origin> = task.headers.get(ORIGIN).and_then(|origin| origin.parse().ok());
        Self {
            task,
            last: origin.clone(),
            made_by: origin,
            is_done: false,
        }
    }

    fn changed(mut self, history: &[Entry], origin: &Origin) -> Self {
        for by in history.iter().filter_map(changed_by) {
            self.is_done |= by.is_same(origin);
            self.last = Some(by);
        }
        self
    }

    /// Says whether a later message has made or changed the task: then this one is past.
    pub(super) fn is_past(&self, origin: &Origin) -> bool {
        self.last.as_ref().is_some_and(|last| origin.is_before(last))
    }

    /// Says whether no earlier message made it: a cancel that is kept is for all that were sent before it.
    pub(super) fn is_made_no_earlier(&self, origin: &Origin) -> bool {
        let made_by = self.made_by.as_ref();
        made_by.is_some_and(|made_by| !made_by.is_before(origin))
    }

    /// Returns the condition under which the task is still as it was found.
    pub(super) fn as_found(&self) -> Expect {
        Expect::Version(self.task.version)
    }

    /// Says whether no message has changed it, so that its history need not be read: only hops came after it was made.
    fn is_as_made(&self) -> bool {
        self.task.version == u64::from(self.task.hop) + 1
    }
}

/// Returns the message that changed a task, if one did.
fn changed_by(entry: &Entry) -> Option<Origin> {
    let by_gateway = entry.actor.as_ref()?.starts_with("gateway:");
    by_gateway.then(|| entry.reason.as_ref()?.parse().ok()).flatten()
}
