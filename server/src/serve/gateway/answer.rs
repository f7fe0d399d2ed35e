//! What is answered to who sent a message.

use delayline::{Answer, Scheduled, Task};
use serde::Serialize;

use super::overtaken;
use crate::serve::http::TaskView;

/// What came of a message, as its sender is told.
#[derive(Debug, Serialize)]
pub(super) struct Reply {
    /// `new`, `existing`, `replaced`, `running`, `done`, `too_late`, `finished`, `conflict`, `not_found`, `cancelled` or
    /// `rejected`.
    pub(super) answer: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    task: Option<TaskView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Reply {
    pub(super) fn rejected(reason: String) -> Self {
        Self {
            answer: "rejected",
            task: None,
            error: Some(reason),
        }
    }

    pub(super) fn cancelled() -> Self {
        Self {
            answer: "cancelled",
            task: None,
            error: None,
        }
    }

    /// `instead_of_mark`: what it replaced was no task.
    pub(super) fn scheduled(scheduled: Scheduled, instead_of_mark: bool) -> Self {
        let answer = match &scheduled {
            Scheduled::Replaced(_) if instead_of_mark => "new",
            scheduled => scheduled.word(),
        };
        let (Scheduled::New(task)
        | Scheduled::Existing(task)
        | Scheduled::Replaced(task)
        | Scheduled::Running(task)) = scheduled;
        Self::of(answer, Some(task))
    }

    /// A mark for what is still to come is no task.
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

    /// The payload is the message's body, which its sender has.
    fn of(answer: &'static str, task: Option<Task>) -> Self {
        Self {
            answer,
            task: task.map(TaskView::without_payload),
            error: None,
        }
    }
}
