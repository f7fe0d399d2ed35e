//! `delayline kinds`: which kinds of tasks there are, and which of them are paused.

use delayline::Timestamp;

use crate::Failure;
use crate::near::note_near;
use crate::operations::{KindView, PausedView};
use crate::place::Place;
use crate::reason::{Reason, reason};
use crate::table::one_line;
use crate::terminal;

/// See which kinds of tasks there are, and let the tasks of a kind wait.
#[derive(Debug, clap::Args)]
pub(crate) struct Kinds {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// List the kinds of which there are tasks, in which states, and which are paused
    #[command(after_help = crate::examples::KINDS_LIST)]
    List {
        #[command(flatten)]
        place: Place,
        /// Print JSON, a line for each kind
        #[arg(long)]
        json: bool,
    },
    /// Let the tasks of a kind wait: all workers know within a second, and start none of them
    #[command(after_help = crate::examples::KINDS_PAUSE)]
    Pause {
        /// The kind
        #[arg(value_name = "KIND")]
        kind: String,
        /// Until this time, such as 2026-12-24T18:00:00Z; else until it is resumed
        #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
        until: Option<Timestamp>,
        /// Why, for people: up to 500 characters and 1000 bytes
        #[arg(long, value_name = "TEXT", value_parser = reason)]
        reason: Option<Reason>,
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Let the tasks of a paused kind run again
    #[command(after_help = crate::examples::KINDS_RESUME)]
    Resume {
        /// The kind
        #[arg(value_name = "KIND")]
        kind: String,
        #[command(flatten)]
        place: Place,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

impl Kinds {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let is_json = self.command.is_json();
        let printed = crate::in_runtime(self.command.run())??;
        match is_json {
            true => crate::print(&printed),
            false => crate::show(&printed),
        }
    }
}

impl Command {
    fn is_json(&self) -> bool {
        let (Self::List { json, .. } | Self::Pause { json, .. } | Self::Resume { json, .. }) = self;
        *json
    }

    /// Does it, and gives what is to be printed.
    async fn run(self) -> Result<String, Failure> {
        match self {
            Self::List { place, json } => {
                let kinds = place.client().await?.kinds(usize::MAX).await?;
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
                json,
            } => {
                crate::reserved::check(&kind)?;
                let client = place.client().await?;
                let reason = reason.map_or_else(String::new, |reason| reason.to_string());
                let paused = client.pause(&kind.as_str().into(), until, &reason).await?;
                note_near(&client, &[&kind]).await;
                match json {
                    true => Ok(crate::json(&paused)? + "\n"),
                    false => Ok(format!("{kind} is {}\n", words(&paused))),
                }
            }
            Self::Resume { kind, place, json } => {
                let client = place.client().await?;
                let was_paused = client.resume(&kind.as_str().into()).await?;
                if !was_paused {
                    note_near(&client, &[&kind]).await;
                }
                if json {
                    return Ok(crate::json(&serde_json::json!({"was_paused": was_paused}))? + "\n");
                }
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
    let mut columns: Vec<_> = kind.states.iter().copied().map(terminal::state).collect();
    columns.extend(kind.paused.as_ref().map(words));
    format!("{}  {}\n", one_line(&kind.kind), columns.join(", "))
}

/// In words, for a terminal.
fn words(paused: &PausedView) -> String {
    let mut text = format!("paused since {}", terminal::long(paused.since.0));
    if let Some(until) = &paused.until {
        text.push_str(&format!(" until {}", terminal::long(until.0)));
    }
    if let Some(actor) = &paused.actor {
        text.push_str(&format!(" by {}", one_line(actor)));
    }
    if !paused.reason.is_empty() {
        text.push_str(&format!(": {}", one_line(&paused.reason)));
    }
    text
}
