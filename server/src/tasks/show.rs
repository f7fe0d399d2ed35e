//! `delayline tasks list`, `show` and `explain`.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use delayline::State;
use delayline::delay::Spelled;
use delayline::store::Target;
use serde_json::Value;

use super::{Limit, Matching, One};
use crate::Failure;
use crate::client::Client;
use crate::near::note_near;
use crate::operations::{EntryView, Standing, TaskView, state_name};
use crate::place::Place;
use crate::table::{one_line, table};
use crate::terminal;

/// One task that is looked at.
#[derive(Debug, clap::Args)]
struct ShowArgs {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    place: Place,
}

impl ShowArgs {
    /// What `look` finds of the task; else which kind may be meant.
    fn look<T>(&self, look: impl AsyncFnOnce(&Client, Target) -> Result<T, Failure>) -> Result<T, Failure> {
        let target = self.one.needed()?;
        crate::in_runtime(async {
            let client = self.place.client().await?;
            let came = look(&client, target).await;
            if let (Err(Failure::Found(_)), Some(kind)) = (&came, &self.one.kind) {
                note_near(&client, &[kind]).await;
            }
            came
        })?
    }
}

/// Show one task: by kind and key the live one, else the one that was made last.
#[derive(Debug, clap::Args)]
pub(super) struct Show {
    #[command(flatten)]
    task: ShowArgs,
    /// Print JSON, with the payload
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(super) fn run(self) -> Result<(), Failure> {
        let task = self.task.look(Client::find)?;
        if self.json {
            return crate::print(&(crate::json(&task)? + "\n"));
        }
        crate::show(&lines(&crate::json(&task.lean())?))
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
            Value::String(text) if name.ends_with("_at") => {
                let time = text.parse().map(terminal::long);
                time.unwrap_or_else(|_| one_line(text))
            }
            Value::String(text) => one_line(text),
            Value::Object(object) if object.is_empty() => continue,
            value => one_line(&value.to_string()),
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
    task: ShowArgs,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(super) fn run(self) -> Result<(), Failure> {
        let explained = self.task.look(Client::explain)?;
        if self.json {
            return crate::print(&(crate::json(&explained)? + "\n"));
        }
        crate::show(&text(&explained.standing))
    }
}

/// The words, and below them a line for each entry.
fn text(explained: &Standing) -> String {
    let words = explained.words.iter().map(|line| one_line(line) + "\n");
    let mut text: String = words.collect();
    if !explained.history.is_empty() {
        text.push('\n');
        text += &table(
            ["AT", "EVENT", "BY", "DUE", "WAKE-UP", "WHY"],
            explained.history.iter().map(entry),
        );
    }
    text
}

fn entry(entry: &EntryView) -> [String; 6] {
    let attempt = entry
        .attempt
        .map_or(String::new(), |attempt| format!(" {attempt}"));
    let wake = entry.wake.as_ref().map_or(String::new(), |leg| {
        let level = leg.level.map_or(String::new(), |level| format!(" level {level}"));
        let delay = Duration::from_millis(leg.delay_ms);
        format!("{} {}{level}", Spelled(delay), leg.backend)
    });
    let text = |text: &Option<String>| text.as_deref().map_or(String::new(), one_line);
    [
        terminal::short(entry.at.0),
        format!("{}{attempt}", one_line(&entry.event)),
        text(&entry.actor),
        terminal::short(entry.due_at.0),
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
    /// Their state
    #[arg(long, value_name = "STATE", default_value = "scheduled", value_parser = states())]
    state: State,
    #[command(flatten)]
    matching: Matching,
    #[command(flatten)]
    limit: Limit,
    #[command(flatten)]
    place: Place,
    /// Print JSON, a line for each task, with its payload
    #[arg(long)]
    json: bool,
}

/// The names of states, which shells complete.
fn states() -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(State::ALL.map(state_name))
        .try_map(|name| serde_json::from_value::<State>(name.into()))
}

impl List {
    pub(super) fn run(self) -> Result<(), Failure> {
        let filter = self.matching.filter(self.kind.as_str().into(), self.state);
        let Limit { limit } = self.limit;
        let (tasks, more) = crate::in_runtime(async {
            let client = self.place.client().await?;
            let (tasks, more) = client.list(&filter, limit, true).await?;
            if tasks.is_empty() {
                note_near(&client, &[&self.kind]).await;
            }
            Ok::<_, Failure>((tasks, more))
        })??;
        if more {
            crate::note(&first(limit));
        }
        if self.json {
            return crate::print(&crate::json_lines(&tasks)?);
        }
        let header = ["DUE", "KEY", "ATTEMPT", "ID", "LAST ERROR"];
        crate::show(&table(header, tasks.iter().map(row)))
    }
}

/// That there may be more than were asked for.
pub(super) fn first(limit: usize) -> String {
    format!("these are the first {limit}, and there may be more: allowed is a higher --limit")
}

/// How long a cell may be.
const WIDEST: usize = 40;

fn row(task: &TaskView) -> [String; 5] {
    [
        terminal::short(task.due_at.0),
        task.key.as_deref().map_or_else(|| "-".to_owned(), cell),
        task.attempt.to_string(),
        cell(&task.id),
        task.last_error.as_deref().map_or_else(String::new, cell),
    ]
}

/// A text of a task in a table, or its beginning.
pub(super) fn cell(text: &str) -> String {
    let text = one_line(text);
    match text.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}
