//! `delayline tasks list`, `show` and `explain`.

use delayline::delay::Spelled;
use delayline::history::{Entry, Explanation};
use delayline::store::Target;
use delayline::{State, Task};
use serde_json::Value;

use super::{Matching, One, missing};
use crate::Failure;
use crate::database::Place;
use crate::operations::{Bounds, ExplainedView, TaskView};
use crate::table::{one_line, table};

/// One task that is looked at.
#[derive(Debug, clap::Args)]
pub(super) struct Shown {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    pub(super) place: Place,
}

impl Shown {
    pub(super) fn target(&self) -> Result<Target, Failure> {
        let target = self.one.target();
        target.ok_or_else(|| missing("no task", "allowed are KIND and KEY, or --id UUID"))
    }
}

/// Show one task: by kind and key the live one, else the one that was live last.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    #[command(flatten)]
    task: Shown,
    /// Print JSON, with the payload
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(self) -> Result<(), Failure> {
        let target = self.task.target()?;
        let task = crate::in_runtime(async {
            let operations = self.task.place.operations().await?;
            Ok::<_, Failure>(operations.find(target).await?)
        })??;
        if self.json {
            return crate::print(&(crate::json(&TaskView::from(task))? + "\n"));
        }
        crate::print(&lines(&crate::json(&TaskView::without_payload(task))?))
    }
}

/// A line for each field that the task has.
fn lines(json: &str) -> String {
    let Ok(Value::Object(fields)) = serde_json::from_str(json) else {
        return json.to_owned();
    };
    let mut lines = String::new();
    for (name, value) in &fields {
        let value = match value {
            Value::String(text) => one_line(text),
            Value::Object(object) if object.is_empty() => continue,
            value => value.to_string(),
        };
        lines.push_str(&format!("{:13} {value}\n", name.replace('_', " ")));
    }
    lines
}

/// Tell where a task stands, what has happened to it, where its wake-up is, and what comes next.
///
/// What has happened is known as far as the servers note it (history = "changes" or "all").
#[derive(Debug, clap::Args)]
pub(super) struct Explain {
    #[command(flatten)]
    task: Shown,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(super) fn run(self) -> Result<(), Failure> {
        let target = self.task.target()?;
        let explained = crate::in_runtime(async {
            let operations = self.task.place.operations().await?;
            Ok::<_, Failure>(operations.explain(target).await?)
        })??;
        if self.json {
            return crate::print(&(crate::json(&ExplainedView::from(explained))? + "\n"));
        }
        crate::print(&text(&explained))
    }
}

/// The words, and below them a line for each entry.
fn text(explained: &Explanation) -> String {
    let mut text = explained.words.join("\n") + "\n";
    if !explained.history.is_empty() {
        text.push('\n');
        text += &table(
            ["at", "event", "by", "due", "wake-up", "why"],
            explained.history.iter().map(entry),
        );
    }
    text
}

fn entry(entry: &Entry) -> [String; 6] {
    let attempt = entry
        .attempt
        .map_or(String::new(), |attempt| format!(" {attempt}"));
    let wake = entry.wake.as_ref().map_or(String::new(), |leg| {
        let level = leg.level.map_or(String::new(), |level| format!(" level {level}"));
        format!("{} {}{level}", Spelled(leg.delay), leg.backend)
    });
    let text = |text: &Option<String>| text.as_deref().map_or(String::new(), one_line);
    [
        entry.at.to_string(),
        format!("{}{attempt}", one_line(&entry.event)),
        text(&entry.actor),
        entry.due_at.to_string(),
        one_line(&wake),
        text(&entry.reason),
    ]
}

/// List the tasks of a kind and state, by due time.
#[derive(Debug, clap::Args)]
pub(super) struct List {
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
    pub(super) fn run(self) -> Result<(), Failure> {
        let filter = self.matching.filter(self.kind.as_str().into(), self.state);
        let tasks: Vec<Task> = crate::in_runtime(async {
            let bounds = Bounds::of_many(self.limit, usize::MAX);
            let listed = self.place.operations().await?.list(&filter, None, bounds).await?;
            Ok::<_, Failure>(listed.0)
        })??;
        if self.json {
            let views: Vec<_> = tasks.into_iter().map(TaskView::from).collect();
            return crate::print(&crate::json_lines(&views)?);
        }
        let header = ["DUE", "KEY", "ATTEMPT", "ID", "LAST ERROR"];
        crate::print(&table(header, tasks.iter().map(row)))
    }
}

/// How long a cell may be.
const WIDEST: usize = 40;

fn row(task: &Task) -> [String; 5] {
    let key = task.key.as_ref();
    [
        task.due_at.to_string(),
        key.map_or_else(|| "-".to_owned(), |key| cell(key.as_str())),
        task.attempt.to_string(),
        task.id.to_string(),
        task.last_error.as_deref().map_or_else(String::new, cell),
    ]
}

fn cell(text: &str) -> String {
    let text = one_line(text);
    match text.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
