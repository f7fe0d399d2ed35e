//! `delayline tasks cancel`, `reschedule`, `shift`, `run`, `redrive` and `dismiss`: of one task, or of all that match.

use std::sync::Mutex;

use delayline::store::{Action, Expect, Target};
use delayline::{Answer, Kind};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Matching, One, missing};
use crate::Failure;
use crate::database::Place;
use crate::operations::{self, Answers, Follower, Operations, TaskView, state_for};
use crate::reason::Reason;

/// Which tasks are changed.
#[derive(Debug, clap::Args)]
pub(super) struct Changed {
    #[command(flatten)]
    one: One,
    /// All tasks of the kind that match, in place of one: KEY is left out
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    matching: Matching,
    /// Only say how many match
    #[arg(long, requires = "all")]
    dry_run: bool,
    /// Why, for the history of the task: up to 500 characters
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    reason: Option<Reason>,
    #[command(flatten)]
    place: Place,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn reason(text: &str) -> Result<Reason, String> {
    Reason::within(text.to_owned()).map_err(|wrong| format!("it is {wrong}"))
}

impl Changed {
    pub(super) fn run(self, action: Action) -> Result<(), Failure> {
        let target = self.one.target().filter(|_| !self.all);
        match (target, &self.one.kind) {
            (Some(_), _) if self.matching.is_given() => Err(missing(
                "a task and a filter",
                "allowed is a filter with --all and without KEY",
            )),
            (Some(target), _) => self.change_one(target, action),
            (None, Some(kind)) if self.all && self.one.key.is_none() => {
                let kind = kind.as_str().into();
                self.change_all(kind, action)
            }
            _ => Err(missing(
                "no task",
                "allowed are KIND and KEY, --id UUID, or KIND and --all",
            )),
        }
    }

    fn change_one(self, target: Target, action: Action) -> Result<(), Failure> {
        let answer = crate::in_runtime(async {
            let operations = self.place.operations().await?.because(self.reason);
            Ok::<_, Failure>(operations.change(target, Expect::Anything, action).await?)
        })??;
        let word = answer.word();
        let is_done = answer.is_done();
        let text = match answer {
            answer if self.json => {
                let task = answer.task().cloned().map(TaskView::without_payload);
                crate::json(&serde_json::json!({"answer": word, "task": task}))? + "\n"
            }
            Answer::Done(task) => {
                let state = format!("{:?}", task.state).to_lowercase();
                format!("done: it is {state}, due {}\n", task.due_at)
            }
            _ => format!("{word}\n"),
        };
        crate::print(&text)?;
        match is_done {
            true => Ok(()),
            false => Err(Failure::Found("nothing was changed".to_owned())),
        }
    }

    fn change_all(self, kind: Kind, action: Action) -> Result<(), Failure> {
        crate::reserved::check_change(&kind, action == Action::Dismiss)?;
        let filter = self.matching.filter(kind, state_for(action));
        let (matched, answers) = crate::in_runtime(async {
            let operations = self.place.operations().await?.because(self.reason);
            if self.dry_run {
                let (matched, _) = operations.count(&filter, action, usize::MAX).await?;
                return Ok((matched, None));
            }
            change_all(&operations, filter, action).await
        })??;
        if self.json {
            let text = crate::json(&serde_json::json!({"matched": matched, "answers": answers}))?;
            return crate::print(&(text + "\n"));
        }
        let mut text = format!("{matched} match\n");
        if let Some(answers) = answers {
            for (count, what) in [
                (answers.done, "were changed"),
                (answers.too_late, "were running by then"),
                (answers.finished, "had ended by then"),
                (
                    answers.conflict,
                    "were moved by another caller, or their key is taken",
                ),
                (answers.not_found, "were not there any more"),
            ] {
                if count > 0 {
                    text.push_str(&format!("{count} {what}\n"));
                }
            }
        }
        crate::print(&text)
    }
}

async fn change_all(
    operations: &Operations,
    filter: operations::Filter,
    action: Action,
) -> Result<(usize, Option<Answers>), Failure> {
    match operations.change_all(filter, action).await? {
        operations::Changed::Done { matched, answers, .. } => Ok((matched, Some(answers))),
        operations::Changed::Begun(work) => {
            let progress = Progress::begin();
            let came = work.run(&progress).await;
            progress.bar.finish_and_clear();
            came?;
            let (matched, answers) = *progress.counts();
            Ok((matched, Some(answers)))
        }
    }
}

/// Shows how far a change has come.
struct Progress {
    bar: ProgressBar,
    counts: Mutex<(usize, Answers)>,
}

impl Progress {
    fn begin() -> Self {
        let bar = ProgressBar::new(0);
        if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos} of {len} {elapsed}") {
            bar.set_style(style);
        }
        Self {
            bar,
            counts: Mutex::default(),
        }
    }

    fn counts(&self) -> std::sync::MutexGuard<'_, (usize, Answers)> {
        self.counts
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Follower for Progress {
    type Permit = ();

    async fn next_step(&self) -> Option<()> {
        Some(())
    }

    fn record(&self, found: usize, answers: &Answers) {
        let mut counts = self.counts();
        counts.0 += found;
        counts.1.add(answers);
        self.bar.set_length(counts.0 as u64);
        self.bar.set_position(counts.1.sum() as u64);
    }
}
