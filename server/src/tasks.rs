//! `delayline tasks`: what is waiting, and what is done about it.

mod change;
mod edit;
mod find;
mod rerun;
mod show;

use delayline::store::{Action, Target, When};
use delayline::{Kind, State, TaskId, Timestamp};

use self::change::Changed;
use self::edit::Edit;
use self::find::Find;
use self::rerun::Rerun;
use self::show::{Explain, List, Show};
use crate::Failure;
use crate::examples;
use crate::operations::Filter;
use crate::span::Span;
use crate::whole::whole;

/// See what is waiting, and cancel, edit, move, run, redrive or dismiss it: one task, or all that match.
#[derive(Debug, clap::Args)]
pub(crate) struct Tasks {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    #[command(after_help = examples::TASKS_LIST)]
    List(List),
    #[command(after_help = examples::TASKS_FIND)]
    Find(Find),
    #[command(after_help = examples::TASKS_SHOW)]
    Show(Show),
    #[command(after_help = examples::TASKS_EXPLAIN)]
    Explain(Explain),
    /// Cancel scheduled tasks: they never run
    #[command(after_help = examples::TASKS_CANCEL)]
    Cancel(Changed),
    #[command(visible_alias = "change", after_help = examples::TASKS_EDIT)]
    Edit(Edit),
    /// Move scheduled tasks to another time (--at or --after); their payloads stay
    #[command(after_help = examples::TASKS_RESCHEDULE)]
    Reschedule {
        #[command(flatten)]
        changed: Changed,
        /// To this time, such as 2026-12-24T18:00:00Z
        #[arg(
            long,
            value_name = "TIME",
            conflicts_with = "after",
            allow_hyphen_values = true
        )]
        at: Option<Timestamp>,
        /// To this long from now, such as 15m
        #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
        after: Option<Span>,
    },
    /// Move scheduled tasks by a time span; their payloads stay
    #[command(after_help = examples::TASKS_SHIFT)]
    Shift {
        #[command(flatten)]
        changed: Changed,
        /// By this, with its sign, such as +10m or -2h
        #[arg(long, value_name = "DURATION", value_parser = signed, allow_hyphen_values = true)]
        by: delayline::Shift,
    },
    /// Make scheduled tasks due now
    #[command(after_help = examples::TASKS_RUN)]
    Run(Changed),
    /// Give dead tasks another life, due now
    #[command(after_help = examples::TASKS_REDRIVE)]
    Redrive(Changed),
    /// Give dead tasks up for good
    #[command(after_help = examples::TASKS_DISMISS)]
    Dismiss(Changed),
    #[command(after_help = examples::TASKS_RERUN)]
    Rerun(Rerun),
}

impl Tasks {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::List(list) => list.run(),
            Command::Find(find) => find.run(),
            Command::Show(show) => show.run(),
            Command::Explain(explain) => explain.run(),
            Command::Cancel(changed) => changed.run(Action::Cancel),
            Command::Edit(edit) => edit.run(),
            Command::Reschedule { changed, at, after } => {
                let due = when(at, after);
                let due =
                    due.ok_or_else(|| missing("no time is given", "allowed is one of --at and --after"))?;
                changed.run(Action::Reschedule(due))
            }
            Command::Shift { changed, by } => changed.run(Action::Shift(by)),
            Command::Run(changed) => changed.run(Action::RunNow),
            Command::Redrive(changed) => changed.run(Action::Redrive),
            Command::Dismiss(changed) => changed.run(Action::Dismiss),
            Command::Rerun(rerun) => rerun.run(),
        }
    }
}

/// The time that is given, if one is.
fn when(at: Option<Timestamp>, after: Option<Span>) -> Option<When> {
    at.map(When::At).or(after.map(|Span(delay)| When::After(delay)))
}

fn signed(text: &str) -> Result<delayline::Shift, String> {
    crate::span::signed(text)
        .ok_or_else(|| "allowed is a sign and a time span, such as +10m or -2h".to_owned())
}

/// Which task.
#[derive(Debug, clap::Args)]
struct One {
    /// The kind of the task
    #[arg(value_name = "KIND")]
    kind: Option<String>,
    /// The caller's own name for it
    #[arg(value_name = "KEY", requires = "kind", allow_negative_numbers = true)]
    key: Option<String>,
    /// Its id, in place of kind and key
    #[arg(long, value_name = "UUID", conflicts_with = "kind")]
    id: Option<TaskId>,
}

impl One {
    /// The task that is named, if one is.
    fn target(&self) -> Option<Target> {
        match (self.id, &self.kind, &self.key) {
            (Some(id), ..) => Some(Target::Id(id)),
            (None, Some(kind), Some(key)) => Some(Target::Key(kind.as_str().into(), key.as_str().into())),
            _ => None,
        }
    }

    /// The same, where one has to be named.
    fn needed(&self) -> Result<Target, Failure> {
        let target = self.target();
        target.ok_or_else(|| missing("no task is named", "allowed are KIND and KEY, or --id UUID"))
    }
}

/// Those that match.
#[derive(Debug, clap::Args)]
struct Matching {
    /// Only those that are due then or later
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    due_after: Option<Timestamp>,
    /// Only those that are due before then
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    due_before: Option<Timestamp>,
    /// Only those with a key that begins so; each task of the kind is looked at for it
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    key_prefix: Option<String>,
    /// Only those whose last error has this in it; each task of the kind is looked at for it
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    error: Option<String>,
}

impl Matching {
    fn is_given(&self) -> bool {
        let Self {
            due_after,
            due_before,
            key_prefix,
            error,
        } = self;
        due_after.is_some() || due_before.is_some() || key_prefix.is_some() || error.is_some()
    }

    fn filter(self, kind: Kind, state: State) -> Filter {
        Filter {
            kinds: vec![kind],
            state,
            due_after: self.due_after,
            due_before: self.due_before,
            key_prefix: self.key_prefix,
            error: self.error,
        }
    }
}

/// Something that is wanted and missing.
fn missing(what: &str, allowed: &str) -> Failure {
    Failure::Argument(format!("{what}: {allowed}"))
}

/// So many at the most.
#[derive(Debug, clap::Args)]
struct Limit {
    /// How many at the most, up to 1000000
    #[arg(long, value_name = "N", default_value = "50", value_parser = whole(1..=1_000_000_usize), allow_negative_numbers = true)]
    limit: usize,
}
