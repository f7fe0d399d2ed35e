//! Makes the answers to messages.

use delayline::{Answer, Task};
use serde::Serialize;

use super::{overtaken, rejected};
use crate::operations::TaskView;

/// The answer to a message.
#[derive(Debug, Serialize)]
pub(super) struct Reply {
    /// `new`, `existing`, `replaced`, `running`, `done`, `too_late`, `finished`, `conflict`, `not_found`, `cancelled` or
    /// `rejected`.
    pub(super) answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    /// Why the message will not come out, if it was to be scheduled, and was not.
    #[serde(skip)]
    pub(super) unscheduled: Option<String>,
}

impl Reply {
    pub(super) fn rejected(reason: String) -> Self {
        Self {
            answer: "rejected",
            task: None,
            error: Some(reason.clone()),
            unscheduled: Some(reason),
        }
    }

    /// A message was scheduled, perhaps in place of another one.
    pub(super) fn new(task: Task, replaces: bool) -> Self {
        Self::of(if replaces { "replaced" } else { "new" }, Some(task))
    }

    /// A message has come before, and this is its task: it is told so again, as `existing` would be another's, and that
    /// of a rejected message never comes out.
    pub(super) fn again(task: Task) -> Self {
        if task.kind.as_str() == rejected::KIND {
            return Self::rejected(rejected::reason(&task).to_owned());
        }
        match overtaken::is_mark(&task) {
            true => Self::cancelled(),
            false => Self::new(task, false),
        }
    }

    pub(super) fn cancelled() -> Self {
        Self::of("cancelled", None).because("it was cancelled before it came")
    }

    pub(super) fn existing(task: Task) -> Self {
        Self::of("existing", Some(task)).because("another message of its key waits already")
    }

    pub(super) fn running(task: Task) -> Self {
        Self::of("running", Some(task)).because("another message of its key is being published")
    }

    pub(super) fn conflict(task: Task) -> Self {
        Self::of("conflict", Some(task)).because("a message of its key came first that was sent later")
    }

    /// A mark for a message that is still to come is no task.
    pub(super) fn changed(answer: Answer) -> Self {
        let word = answer.word();
        match answer {
            Answer::Done(task) | Answer::TooLate(task) | Answer::Finished(task) | Answer::Conflict(task)
                if !overtaken::is_mark(&task) =>
            {
                Self::of(word, Some(task))
            }
            _ => Self::of("not_found", None),
        }
    }

    /// Without body and properties: these belong to the message's sender, and an answer goes to the one that asks.
    fn of(answer: &'static str, task: Option<Task>) -> Self {
        let bare = |mut task: Task| {
            task.headers.clear();
            TaskView::without_payload(task)
        };
        Self {
            answer,
            task: task.map(bare),
            error: None,
            unscheduled: None,
        }
    }

    fn because(self, reason: &str) -> Self {
        Self {
            unscheduled: Some(reason.to_owned()),
            ..self
        }
    }
}
