//! `delayline tasks explain`: what has become of a task, and what comes next.

use delayline::delay::Spelled;
use delayline::history::{Entry, Explanation};

use super::LookedAt;
use super::show::one_line;
use crate::Failure;
use crate::serve::ExplainedView;
use crate::table::table;

/// Tell where a task stands, what has happened to it, where its wake-up is, and what comes next.
///
/// What has happened is known as far as the servers note it (history = "changes" or "all").
#[derive(Debug, clap::Args)]
pub(crate) struct Explain {
    #[command(flatten)]
    task: LookedAt,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Explain {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let explained = self
            .task
            .look(async |scheduler, target| scheduler.explain(target).await)?;
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
            explained.history.iter().map(row),
        );
    }
    text
}

fn row(entry: &Entry) -> [String; 6] {
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
