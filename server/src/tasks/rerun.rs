//! `delayline tasks rerun`: a task that has ended, once more.

use delayline::Answer;
use serde_json::json;

use super::show::Shown;
use crate::Failure;
use crate::operations::TaskView;
use crate::reason::Reason;

/// Run a task that has ended once more, as a new one that is due now.
///
/// The new task has the kind, payload and headers of the one that has ended, and its key unless a live task has it.
#[derive(Debug, clap::Args)]
pub(super) struct Rerun {
    #[command(flatten)]
    task: Shown,
    /// Why, for the history of the new task: up to 500 characters
    #[arg(long, value_name = "TEXT", value_parser = super::change::reason)]
    reason: Option<Reason>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Rerun {
    pub(super) fn run(self) -> Result<(), Failure> {
        let target = self.task.target()?;
        let answer = crate::in_runtime(async {
            let operations = self.task.place.operations().await?;
            Ok::<_, Failure>(operations.rerun(target, self.reason).await?)
        })??;
        let word = if answer.is_done() { "new" } else { answer.word() };
        let text = match &answer {
            answer if self.json => {
                let task = answer.task().cloned().map(TaskView::without_payload);
                crate::json(&json!({"answer": word, "task": task}))? + "\n"
            }
            Answer::Done(task) => format!("new: it is {}\n", task.id),
            _ => format!("{word}\n"),
        };
        crate::print(&text)?;
        match answer.is_done() {
            true => Ok(()),
            false => Err(Failure::Found("nothing was scheduled".to_owned())),
        }
    }
}
