//! Another payload, another time, or both, of a task that waits.

use delayline::store::{Action, Expect, Target, When};
use delayline::{Answer, Error};
use serde_json::value::RawValue;

use super::{Operations, Refusal};
use crate::depth;
use crate::reserved;

/// What is changed of a task: what is not said stays as it is.
#[derive(Debug)]
pub(crate) struct Edit {
    pub(crate) payload: Option<Box<RawValue>>,
    pub(crate) due: Option<When>,
}

impl Operations {
    /// Edits a task, if it is as `expect` says.
    pub(crate) async fn edit(&self, target: Target, expect: Expect, edit: Edit) -> Result<Answer, Refusal> {
        let payload = match (edit.payload, edit.due) {
            (Some(payload), _) => payload,
            (None, Some(due)) => return self.change(target, expect, Action::Reschedule(due)).await,
            (None, None) => return Err(Refusal::Error(nothing())),
        };
        depth::check(payload.get())?;
        let Some(task) = self.found(target).await? else {
            return Ok(Answer::NotFound);
        };
        reserved::check(task.kind.as_str())?;
        // Such as those of a message, whose payload is its sender's.
        reserved::check_headers(reserved::shown(task.headers).keys())?;
        let mut new = delayline::Edit::payload_bytes(String::from(Box::<str>::from(payload)));
        new = match edit.due {
            Some(When::After(delay)) => new.after(delay),
            Some(When::At(time)) => new.at(time),
            None => new,
        };
        Ok(self.scheduler.edit_if(task.id, expect, new).await?)
    }
}

fn nothing() -> Error {
    Error::Invalid {
        field: "payload",
        value: "missing".to_owned(),
        allowed: "allowed is a payload, a time, or both: else there is nothing to change".to_owned(),
    }
}
