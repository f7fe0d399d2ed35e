//! `delayline tasks`: what is waiting, and what is done about it.

mod change;
mod explain;
mod list;
mod show;

use delayline::store::Target;
use delayline::{Error, Kind, Scheduler, State, TaskId, Timestamp};

use crate::Failure;
use crate::database::Place;
use crate::filter::Filter;

/// See what is waiting, and cancel, move, run, redrive or dismiss it: one task, or all that match.
#[derive(Debug, clap::Args)]
pub(crate) struct Tasks {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    List(list::List),
    Show(show::Show),
    Explain(explain::Explain),
    Cancel(change::Cancel),
    Reschedule(change::Reschedule),
    Shift(change::Shift),
    Run(change::Run),
    Redrive(change::Redrive),
    Dismiss(change::Dismiss),
}

impl Tasks {
    pub(crate) fn run(self) -> Result<(), Failure> {
        match self.command {
            Command::List(list) => list.run(),
            Command::Show(show) => show.run(),
            Command::Explain(explain) => explain.run(),
            Command::Cancel(cancel) => cancel.run(),
            Command::Reschedule(reschedule) => reschedule.run(),
            Command::Shift(shift) => shift.run(),
            Command::Run(run) => run.run(),
            Command::Redrive(redrive) => redrive.run(),
            Command::Dismiss(dismiss) => dismiss.run(),
        }
    }
}

/// Which task.
#[derive(Debug, clap::Args)]
struct One {
    /// The kind of the task
    #[arg(value_name = "KIND")]
    kind: Option<String>,
    /// The caller's own name for it
    #[arg(value_name = "KEY", requires = "kind")]
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
}

/// One task that is looked at, and where it is.
#[derive(Debug, clap::Args)]
struct LookedAt {
    #[command(flatten)]
    one: One,
    #[command(flatten)]
    place: Place,
}

impl LookedAt {
    /// What is found of it.
    fn look<T>(
        self,
        look: impl AsyncFnOnce(Scheduler, Target) -> Result<Option<T>, Error>,
    ) -> Result<T, Failure> {
        let target = self
            .one
            .target()
            .ok_or_else(|| missing("no task", "allowed are KIND and KEY, or --id UUID"))?;
        let found = crate::in_runtime(async {
            let scheduler = self.place.scheduler().await?;
            Ok::<_, Failure>(look(scheduler, target).await?)
        })??;
        found.ok_or_else(|| Failure::Found("there is no such task".to_owned()))
    }
}

/// Those that match.
#[derive(Debug, clap::Args)]
struct Matching {
    /// Only those that are due then or later
    #[arg(long, value_name = "TIME")]
    due_after: Option<Timestamp>,
    /// Only those that are due before then
    #[arg(long, value_name = "TIME")]
    due_before: Option<Timestamp>,
    /// Only those with a key that begins so; each task of the kind is looked at for it
    #[arg(long, value_name = "TEXT")]
    key_prefix: Option<String>,
    /// Only those whose last error has this in it; each task of the kind is looked at for it
    #[arg(long, value_name = "TEXT")]
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

    fn filter(&self, kind: Kind, state: State) -> Filter {
        Filter {
            kinds: vec![kind],
            state,
            due_after: self.due_after,
            due_before: self.due_before,
            key_prefix: self.key_prefix.clone(),
            error: self.error.clone(),
        }
    }
}

/// A name that is wanted and missing.
fn missing(what: &str, allowed: &str) -> Failure {
    Failure::from(Error::Invalid {
        field: "arguments",
        value: what.to_owned(),
        allowed: allowed.to_owned(),
    })
}
