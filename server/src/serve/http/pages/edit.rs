//! Giving a task another payload.

use axum::http::StatusCode;
use axum::response::Response;
use delayline::store::{Expect, Target};
use delayline::{Answer, State, Task, TaskId};
use serde_json::value::RawValue;

use super::super::Shared;
use super::super::problem::Problem;
use super::fields::Fields;
use super::payload::{PayloadView, compact};
use super::task::{not_found, shown_again, to_task};
use super::visitor::Visitor;
use super::words::code;
use crate::operations::Edit;
use crate::reserved;
use crate::serve::config::Right;

/// The field of the form with the payload.
const TEXT: &str = "text";

/// What the form of a payload has in it.
#[derive(Debug)]
pub(super) struct Editing {
    pub(super) text: String,
    /// Of which revision the task was when the form was made.
    pub(super) revision: u64,
}

impl Editing {
    /// Fills the form of a task, with what was sent before if that was refused; none, where its payload cannot be edited.
    pub(super) fn of(task: &Task, shown: &PayloadView, fields: &Fields) -> Option<Self> {
        let sent = fields.one(TEXT);
        let text = sent.or_else(|| shown.editable().filter(|_| is_editable(task)))?;
        Some(Self {
            text: text.to_owned(),
            revision: revision(task),
        })
    }
}

/// Whether a task waits, and its payload is not of the server or of another sender.
fn is_editable(task: &Task) -> bool {
    task.state == State::Scheduled && reserved::is_of_callers(task)
}

/// Counts how often a task was changed: its version, without the hops of its wake-up, which change nothing that a page
/// shows and come at any time.
fn revision(task: &Task) -> u64 {
    task.version.saturating_sub(task.hop.into())
}

/// `POST /tasks/{id}/edit`
pub(super) async fn edit(
    app: &Shared,
    visitor: Visitor,
    fields: &Fields,
    id: TaskId,
) -> Result<Response, Problem> {
    // What is edited was seen.
    visitor.caller.need(Right::Read)?;
    match edited(app, &visitor, fields, id).await {
        Ok(Answer::NotFound) => Err(not_found()),
        Ok(answer) => Ok(to_task(
            app,
            id,
            &format!("{}&payload=shown", code("edit", &answer)),
        )),
        Err(problem) if problem.status().is_client_error() => {
            let field = fields.reason().map_or("edit-reason", |_| TEXT);
            shown_again(app, visitor, id, fields, field, problem).await
        }
        Err(problem) => Err(problem),
    }
}

/// Edits a task that is as it was shown.
async fn edited(app: &Shared, visitor: &Visitor, fields: &Fields, id: TaskId) -> Result<Answer, Problem> {
    let operations = visitor.operations(app, fields)?;
    let payload = payload(fields.one(TEXT).unwrap_or_default())?;
    loop {
        let task = operations.find(Target::Id(id)).await?;
        let is_as_shown = fields.one("revision") == Some(revision(&task).to_string().as_str());
        if task.state == State::Scheduled && !is_as_shown {
            return Err(changed_meanwhile());
        }
        let edit = Edit {
            payload: Some(payload.clone()),
            due: None,
        };
        match operations
            .edit(Target::Id(id), Expect::Version(task.version), edit)
            .await?
        {
            // It may have been a hop.
            Answer::Conflict(_) => {}
            answer => return Ok(answer),
        }
    }
}

/// Reads JSON as it was written into the form.
fn payload(text: &str) -> Result<Box<RawValue>, Problem> {
    let checked = serde_json::from_str::<&RawValue>(text);
    let compacted = checked.and_then(|_| RawValue::from_string(compact(text)));
    compacted.map_err(|error| {
        let detail = format!("the payload is no JSON: {error}; nothing was changed");
        Problem::new(StatusCode::BAD_REQUEST, detail)
    })
}

fn changed_meanwhile() -> Problem {
    let detail = "nothing was changed, as the task has been changed since it was shown: its payload of now is above, and \
                  what was written is here; save it again to have it replace that";
    Problem::new(StatusCode::CONFLICT, detail)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use delayline::store::MemoryStore;
    use delayline::{NewTask, Scheduler};

    use super::*;

    async fn scheduled(task: NewTask) -> Task {
        let scheduler = Scheduler::new(MemoryStore::new());
        let scheduled = scheduler.schedule(task.after(Duration::from_secs(60))).await;
        scheduled.unwrap().task().clone()
    }

    #[tokio::test]
    async fn a_hop_makes_no_other_revision() {
        let mut task = scheduled(NewTask::new("k", &1)).await;
        let before = revision(&task);
        (task.version, task.hop) = (task.version + 2, task.hop + 2);
        assert_eq!(revision(&task), before);
        task.version += 1;
        assert_ne!(revision(&task), before);
    }

    #[tokio::test]
    async fn what_is_of_the_server_or_of_another_sender_is_left_to_them() {
        for (kind, header, is_so) in [
            ("k", "source", true),
            ("k", reserved::REQUESTS, true),
            ("k", "DELAYLINE_TOPIC", false),
            ("delayline.rejected", "source", false),
        ] {
            let task = scheduled(NewTask::new(kind, &1).header(header, "x")).await;
            assert_eq!(is_editable(&task), is_so, "{kind} {header}");
        }
    }
}
