//! `delayline tasks show`: one task.

use serde_json::Value;

use super::LookedAt;
use crate::Failure;
use crate::serve::TaskView;

/// Show one task: by kind and key the live one, else the one that was live last.
#[derive(Debug, clap::Args)]
pub(crate) struct Show {
    #[command(flatten)]
    task: LookedAt,
    /// Print JSON, with the payload
    #[arg(long)]
    json: bool,
}

impl Show {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let task = self
            .task
            .look(async |scheduler, target| scheduler.find(target).await)?;
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

/// A text of somebody's, without what a terminal would take for a command.
pub(super) fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().map(plain).collect()
}
