//! Running a task that has ended once more, as a new one.

use delayline::store::Target;
use delayline::{Answer, NewTask, Scheduled};

use super::{Operations, Refusal};
use crate::reason::Reason;
use crate::reserved;

impl Operations {
    /// Schedules what a task that has ended was about once more, due now, as a task with an id of its own.
    ///
    /// It has the kind, payload, headers and number of attempts of the one that has ended, and its key unless a live task has
    /// it. `Done` has the new task, and `Conflict` the one that has not ended.
    pub(crate) async fn rerun(&self, target: Target, reason: Option<Reason>) -> Result<Answer, Refusal> {
        let task = match self.find(target).await {
            Ok(task) => task,
            Err(Refusal::NoTask) => return Ok(Answer::NotFound),
            Err(refusal) => return Err(refusal),
        };
        reserved::check(task.kind.as_str())?;
        if task.state.is_live() {
            return Ok(Answer::Conflict(task));
        }
        let headers = reserved::shown(task.headers.clone());
        // Such as those of a message, which the gateway alone schedules.
        reserved::check_headers(headers.keys())?;
        let id = self.scheduler.new_id();
        let new = || {
            let mut new = NewTask::from_bytes(task.kind.clone(), task.payload.clone()).id(id);
            for (name, value) in &headers {
                new = new.header(name, value);
            }
            match task.max_attempts {
                Some(attempts) => new.max_attempts(attempts),
                None => new,
            }
        };
        let scheduler = self.scheduler.because(&match reason {
            Some(reason) => format!("again after {}: {reason}", task.id),
            None => format!("again after {}", task.id),
        });
        if let Some(key) = &task.key
            && let Scheduled::New(task) = scheduler.schedule(new().key(key.clone())).await?
        {
            return Ok(Answer::Done(task));
        }
        // It has no key, or a live task has it.
        let scheduled = scheduler.schedule(new()).await?;
        Ok(Answer::Done(scheduled.task().clone()))
    }
}
