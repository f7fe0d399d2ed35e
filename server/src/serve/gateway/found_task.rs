//! Finds the task that a message is about, and what messages have done to it.

use delayline::history::Entry;
use delayline::store::{Expect, Target};
use delayline::{Error, NewTask, Scheduler, Task, TaskId};

use super::origin::Origin;
use super::overtaken;

/// The header of a task that says which message made it.
pub(super) const ORIGIN: &str = "DELAYLINE_ORIGIN";
/// The header of a task that says which messages have changed earlier tasks of its key, each with the id of that task: a
/// verb that its producer sends again finds this one by the key.
const VERBS: &str = "DELAYLINE_VERBS";
/// How many of them it says, at the most.
const VERBS_KEPT: usize = 16;

/// Has a new task say which messages have changed earlier ones of its key, as the [last of them](FoundTask::verbs) knows.
pub(super) fn with_verbs(task: NewTask, verbs: Option<String>) -> NewTask {
    match verbs {
        Some(verbs) => task.header(VERBS, verbs),
        None => task,
    }
}

/// A task, as a message found it.
pub(super) struct FoundTask {
    pub(super) task: Task,
    /// The message that made it, if one did.
    made_by: Option<Origin>,
    /// The messages that changed it, in their order.
    changed_by: Vec<Origin>,
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
            made_by: origin,
            changed_by: Vec::new(),
            is_done: false,
        }
    }

    fn changed(mut self, history: &[Entry], origin: &Origin) -> Self {
        self.changed_by = history.iter().filter_map(changed_by).collect();
        self.is_done = self.changed_by.iter().any(|by| by.is_same(origin));
        self
    }

    /// Says whether a later message has made or changed the task: then this one is past.
    pub(super) fn is_past(&self, origin: &Origin) -> bool {
        let last = self.changed_by.last().or(self.made_by.as_ref());
        last.is_some_and(|last| origin.is_before(last))
    }

    /// Returns the earlier task of its key that this message has changed, if it has.
    pub(super) fn changed_before(&self, origin: &Origin) -> Option<TaskId> {
        self.verbs_before().find_map(|verb| {
            let (message, id) = verb.split_once(' ')?;
            id.parse().ok().filter(|_| message == origin.message())
        })
    }

    /// Returns which messages have changed this task and those before it, for the next one of its key.
    pub(super) fn verbs(&self) -> Option<String> {
        // The mark of a cancel is what that cancel has done.
        let made_by = self.made_by.iter().filter(|_| overtaken::is_mark(&self.task));
        let own = made_by.chain(&self.changed_by);
        let own = own.map(|by| format!("{} {}", by.message(), self.task.id));
        let all: Vec<_> = self.verbs_before().map(str::to_owned).chain(own).collect();
        let kept = &all[all.len().saturating_sub(VERBS_KEPT)..];
        (!kept.is_empty()).then(|| kept.join(","))
    }

    fn verbs_before(&self) -> impl Iterator<Item = &str> {
        self.task
            .headers
            .get(VERBS)
            .into_iter()
            .flat_map(|verbs| verbs.split(','))
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
