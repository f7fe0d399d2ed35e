//! `delayline kinds`: which kinds of tasks there are, and which of them are paused.

use delayline::{State, Timestamp};

use crate::Failure;
use crate::database::Place;
use crate::operations::{KindView, PausedView};
use crate::table::one_line;

/// See which kinds of tasks there are, and let the tasks of a kind wait.
#[derive(Debug, clap::Args)]
pub(crate) struct Kinds {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the kinds of which there are tasks, in which states, and which are paused
    List {
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let the tasks of a kind wait: all workers know within a second, and start none of them
    Pause {
        /// The kind
        #[arg(value_name = "KIND")]
        kind: String,
        /// Until this time, such as 2026-12-24T18:00:00Z; else until it is resumed
        #[arg(long, value_name = "TIME")]
        until: Option<Timestamp>,
        /// Why, for people
        #[arg(long, value_name = "TEXT", default_value = "")]
        reason: String,
        #[command(flatten)]
        place: Place,
    },
    /// Let the tasks of a paused kind run again
    Resume {
        /// The kind
        #[arg(value_name = "KIND")]
        kind: String,
        #[command(flatten)]
        place: Place,
    },
}

impl Kinds {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let printed = crate::in_runtime(self.command.run())??;
        crate::print(&printed)
    }
}

impl Command {
    /// Does it, and gives what is to be printed.
    async fn run(self) -> Result<String, Failure> {
        match self {
            Self::List { place, json } => {
                let kinds = place.operations().await?.kinds(None, usize::MAX).await?;
                match json {
                    true => crate::json_lines(&kinds),
                    false => Ok(kinds.iter().map(line).collect()),
                }
            }
            Self::Pause {
                kind,
                until,
                reason,
                place,
            } => {
                crate::reserved::check(&kind)?;
                let operations = place.operations().await?;
                let paused = operations.pause(&kind.as_str().into(), until, &reason).await?;
                Ok(format!("{kind} is {}\n", words(&paused)))
            }
            Self::Resume { kind, place } => {
                let was_paused = place.operations().await?.resume(&kind.into()).await?;
                let answer = if was_paused {
                    "resumed\n"
                } else {
                    "it was not paused\n"
                };
                Ok(answer.to_owned())
            }
        }
    }
}

fn line(kind: &KindView) -> String {
    let state = |state: &State| format!("{state:?}").to_lowercase();
    let mut columns: Vec<_> = kind.states.iter().map(state).collect();
    columns.extend(kind.paused.as_ref().map(words));
    format!("{}  {}\n", kind.kind, columns.join(", "))
}

/// In words, for a terminal.
fn words(paused: &PausedView) -> String {
    let mut text = format!("paused since {}", paused.since.0);
    if let Some(until) = &paused.until {
        text.push_str(&format!(" until {}", until.0));
    }
    if let Some(actor) = &paused.actor {
        text.push_str(&format!(" by {}", one_line(actor)));
    }
    if !paused.reason.is_empty() {
        text.push_str(&format!(": {}", one_line(&paused.reason)));
    }
    text
}
