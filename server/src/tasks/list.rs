//! `delayline tasks list`: tasks of a kind and state.

use delayline::{State, Task};

use super::Matching;
use super::show::one_line;
use crate::Failure;
use crate::database::Place;
use crate::serve::TaskView;

/// List the tasks of a kind and state, by due time.
#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// The kind of the tasks
    #[arg(value_name = "KIND")]
    kind: String,
    /// Their state: scheduled, running, done, dead or cancelled
    #[arg(long, value_name = "STATE", default_value = "scheduled", value_parser = state)]
    state: State,
    #[command(flatten)]
    matching: Matching,
    /// How many at the most
    #[arg(long, value_name = "N", default_value_t = 50)]
    limit: usize,
    #[command(flatten)]
    place: Place,
    /// Print JSON, a line for each task, with its payload
    #[arg(long)]
    json: bool,
}

fn state(text: &str) -> Result<State, String> {
    let named = serde_json::from_value(text.into());
    named.map_err(|_| "allowed are scheduled, running, done, dead and cancelled".to_owned())
}

impl List {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let filter = self.matching.filter(self.kind.as_str().into(), self.state);
        let tasks: Vec<Task> = crate::in_runtime(async {
            let scheduler = self.place.scheduler().await?;
            Ok::<_, Failure>(filter.find(&scheduler, self.limit).await?)
        })??;
        if self.json {
            let mut lines = String::new();
            for task in tasks {
                lines.push_str(&crate::json(&TaskView::from(task))?);
                lines.push('\n');
            }
            return crate::print(&lines);
        }
        crate::print(&table(&tasks))
    }
}

/// How long a cell may be.
const WIDEST: usize = 40;

fn table(tasks: &[Task]) -> String {
    let row = |task: &Task| {
        [
            task.due_at.to_string(),
            task.key
                .as_ref()
                .map_or_else(|| "-".to_owned(), |key| cell(key.as_str())),
            task.attempt.to_string(),
            task.id.to_string(),
            task.last_error.as_deref().map_or_else(String::new, cell),
        ]
    };
    let header = ["DUE", "KEY", "ATTEMPT", "ID", "LAST ERROR"];
    crate::table::table(header, tasks.iter().map(row))
}

fn cell(text: &str) -> String {
    let text = one_line(text);
    match text.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
