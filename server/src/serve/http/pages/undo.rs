//! Undoing a cancel, for a moment.

use axum::Extension;
use axum::extract::State;
use axum::response::Response;
use delayline::{Answer, TaskId};

use super::super::Shared;
use super::super::problem::Problem;
use super::bulk::to_done;
use super::fields::Fields;
use super::visitor::Visitor;
use crate::operations::Answers;
use crate::serve::config::Right;
use crate::serve::derived_id::derived_id;

/// Puts a task back that was cancelled a moment ago.
pub(super) async fn undo(app: &Shared, visitor: &Visitor, id: TaskId) -> Result<Answer, Problem> {
    visitor.caller.need(Right::Schedule)?;
    // So a form that is sent twice makes one task.
    let new_id = derived_id([b"undo", id.to_string().as_bytes()], &[]);
    Ok(visitor.caller.operations(app).undo(id, new_id).await?)
}

/// `POST /bulk/undo`
pub(super) async fn undo_many(
    State(app): State<Shared>,
    Extension(visitor): Extension<Visitor>,
    Extension(fields): Extension<Fields>,
) -> Result<Response, Problem> {
    visitor.caller.need(Right::Schedule)?;
    let ids: Vec<TaskId> = fields.all("task").map(str::parse).collect::<Result<_, _>>()?;
    let mut answers = Answers::default();
    for id in ids {
        // Those that follow have few seconds left.
        match undo(&app, &visitor, id).await {
            Ok(answer) => answers.count(&answer),
            Err(problem) if problem.status().is_server_error() => answers.failed += 1,
            Err(_) => answers.conflict += 1,
        }
    }
    Ok(to_done(&app, "undo", &answers, &[]))
}
