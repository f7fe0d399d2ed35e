//! Running a task that has ended once more, as a new one.

use std::time::Duration;

use delayline::store::Target;
use delayline::{Answer, NewTask, Scheduled, State, Task, TaskId, Timestamp};

use super::{Operations, Refusal};
use crate::reason::Reason;
use crate::reserved;

/// For how long a cancel can be undone.
pub(crate) const UNDO: Duration = Duration::from_secs(10);

/// The time until which a cancelled task can be put back.
pub(crate) fn undo_until(task: &Task) -> Option<Timestamp> {
    let cancelled = task.finished_at.filter(|_| task.state == State::Cancelled);
    cancelled.map(|at| at.after(UNDO))
}

impl Operations {
    /// Schedules what a task that has ended was about once more, due now, as a task with an id of its own.
    ///
    /// It has the kind, payload, headers and number of attempts of the one that has ended, and its key unless a live task has
    /// it. `Done` has the new task, and `Conflict` the one that has not ended.
    pub(crate) async fn rerun(&self, target: Target, reason: Option<Reason>) -> Result<Answer, Refusal> {
        let Some(task) = self.found(target).await? else {
            return Ok(Answer::NotFound);
        };
        reserved::check(task.kind.as_str())?;
        if task.state.is_live() {
            return Ok(Answer::Conflict(task));
        }
        let id = self.scheduler.new_id();
        let scheduler = self.scheduler.because(&match reason {
            Some(reason) => format!("again after {}: {reason}", task.id),
            None => format!("again after {}", task.id),
        });
        if let Some(key) = &task.key
            && let Scheduled::New(task) = scheduler.schedule(same(&task)?.id(id).key(key.clone())).await?
        {
            return Ok(Answer::Done(task));
        }
        // It has no key, or a live task has it.
        let scheduled = scheduler.schedule(same(&task)?.id(id)).await?;
        Ok(Answer::Done(scheduled.task().clone()))
    }

    /// Puts a task back that was cancelled a moment ago: schedules the same once more at the time that it had, as a task with
    /// this id.
    ///
    /// `Done` has the new task. `Conflict` has the one that stays as it is: it was not cancelled, or earlier than [`UNDO`] ago,
    /// or a live task has its key by now.
    pub(crate) async fn undo(&self, cancelled: TaskId, new_id: TaskId) -> Result<Answer, Refusal> {
        // Asked for twice, perhaps when the time for it was over.
        if let Some(new) = self.found(new_id.into()).await? {
            return Ok(Answer::Done(new));
        }
        let Some(task) = self.found(cancelled.into()).await? else {
            return Ok(Answer::NotFound);
        };
        reserved::check(task.kind.as_str())?;
        let now = self.store.now().await?;
        if undo_until(&task).is_none_or(|until| until < now) {
            return Ok(Answer::Conflict(task));
        }
        let mut new = same(&task)?.id(new_id).at(task.due_at);
        if let Some(key) = &task.key {
            new = new.key(key.clone());
        }
        let why = format!("the cancel of {} was undone", task.id);
        match self.scheduler.because(&why).schedule(new).await? {
            Scheduled::New(new) => Ok(Answer::Done(new)),
            // Asked for twice at once.
            Scheduled::Existing(new) if new.id == new_id => Ok(Answer::Done(new)),
            _ => Ok(Answer::Conflict(task)),
        }
    }
}

/// A new task of the same kind, payload, headers and number of attempts.
fn same(task: &Task) -> Result<NewTask, Refusal> {
    let headers = reserved::shown(task.headers.clone());
    // Such as those of a message, which the gateway alone schedules.
    reserved::check_headers(headers.keys())?;
    let mut new = NewTask::from_bytes(task.kind.clone(), task.payload.clone());
    for (name, value) in headers {
        new = new.header(name, value);
    }
    Ok(match task.max_attempts {
        Some(attempts) => new.max_attempts(attempts),
        None => new,
    })
}
