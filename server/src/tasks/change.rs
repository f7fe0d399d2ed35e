//! `delayline tasks cancel`, `reschedule`, `shift`, `run`, `redrive` and `dismiss`: of one task, or of all that match.

use delayline::store::{Action, Expect, When};
use delayline::{Answer, Scheduler, Timestamp};
use indicatif::{ProgressBar, ProgressStyle};

use super::{Matching, One, missing};
use crate::Failure;
use crate::bulk::{self, Match};
use crate::database::Place;
use crate::reason::Reason;
use crate::reserved;
use crate::serve::TaskView;
use crate::span::Span;

/// Which tasks are changed.
#[derive(Debug, clap::Args)]
struct Changed {
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

fn reason(text: &str) -> Result<Reason, String> {
    Reason::within(text.to_owned()).map_err(|wrong| format!("it is {wrong}"))
}

/// How many are changed by one command at the most: their ids are held in memory meanwhile.
const MOST: usize = 5_000_000;

impl Changed {
    fn run(self, action: Action) -> Result<(), Failure> {
        let is_one = self.one.target().filter(|_| !self.all);
        match (is_one, &self.one.kind) {
            (Some(_), _) if self.matching.is_given() => Err(missing(
                "a task and a filter",
                "allowed is a filter with --all and without KEY",
            )),
            (Some(target), _) => self.change_one(target, action),
            (None, Some(kind)) if self.all && self.one.key.is_none() => self.change_all(kind, action),
            _ => Err(missing(
                "no task",
                "allowed are KIND and KEY, --id UUID, or KIND and --all",
            )),
        }
    }

    async fn scheduler(&self) -> Result<Scheduler, Failure> {
        let scheduler = self.place.scheduler().await?;
        Ok(match &self.reason {
            Some(reason) => reason.given_to(&scheduler),
            None => scheduler,
        })
    }

    fn change_one(&self, target: delayline::store::Target, action: Action) -> Result<(), Failure> {
        let answer = crate::in_runtime(async {
            let scheduler = self.scheduler().await?;
            if let Some(task) = scheduler.find(target.clone()).await? {
                reserved::check_change(&task.kind, matches!(action, Action::Dismiss))?;
            }
            Ok::<_, Failure>(match action {
                Action::Shift(by) => scheduler.shift(target, by).await?,
                action => {
                    let answers = scheduler.change_each([(target, Expect::Anything, action)]).await;
                    answers.into_iter().next().unwrap_or(Ok(Answer::NotFound))?
                }
            })
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

    fn change_all(&self, kind: &str, action: Action) -> Result<(), Failure> {
        reserved::check_change(&kind.into(), matches!(action, Action::Dismiss))?;
        let filter = self.matching.filter(kind.into(), bulk::state_for(action));
        let (matched, answers) = crate::in_runtime(async {
            let scheduler = self.scheduler().await?;
            let matches: Vec<Match> = filter.find(&scheduler, MOST).await?;
            if self.dry_run {
                return Ok((matches.len(), None));
            }
            let bar = ProgressBar::new(matches.len() as u64);
            if let Ok(style) = ProgressStyle::with_template("[{bar:30}] {pos} of {len} {elapsed}") {
                bar.set_style(style);
            }
            let told = |answers: &bulk::Answers| bar.set_position(answers.sum() as u64);
            let changed = bulk::change(&scheduler, &matches, action, told).await;
            bar.finish_and_clear();
            Ok::<_, Failure>((matches.len(), Some(changed?)))
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
                    "were moved by somebody else, or their key is taken",
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

/// Cancel scheduled tasks: they never run.
#[derive(Debug, clap::Args)]
pub(crate) struct Cancel {
    #[command(flatten)]
    changed: Changed,
}

impl Cancel {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.changed.run(Action::Cancel)
    }
}

/// Make scheduled tasks due now.
#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    changed: Changed,
}

impl Run {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.changed.run(Action::RunNow)
    }
}

/// Give dead tasks another life, due now.
#[derive(Debug, clap::Args)]
pub(crate) struct Redrive {
    #[command(flatten)]
    changed: Changed,
}

impl Redrive {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.changed.run(Action::Redrive)
    }
}

/// Give dead tasks up for good.
#[derive(Debug, clap::Args)]
pub(crate) struct Dismiss {
    #[command(flatten)]
    changed: Changed,
}

impl Dismiss {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.changed.run(Action::Dismiss)
    }
}

/// Move scheduled tasks to another time.
#[derive(Debug, clap::Args)]
pub(crate) struct Reschedule {
    #[command(flatten)]
    changed: Changed,
    /// To this time, such as 2026-12-24T18:00:00Z
    #[arg(
        long,
        value_name = "TIME",
        required_unless_present = "after",
        conflicts_with = "after"
    )]
    at: Option<Timestamp>,
    /// To this long from now, such as 15m
    #[arg(long, value_name = "DURATION")]
    after: Option<Span>,
}

impl Reschedule {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let due = match (self.at, self.after) {
            (Some(time), _) => When::At(time),
            (None, Some(Span(delay))) => When::After(delay),
            (None, None) => return Err(missing("no time", "allowed is one of --at and --after")),
        };
        self.changed.run(Action::Reschedule(due))
    }
}

/// Move scheduled tasks by a time span.
#[derive(Debug, clap::Args)]
pub(crate) struct Shift {
    #[command(flatten)]
    changed: Changed,
    /// By this, with its sign, such as +10m or -2h
    #[arg(long, value_name = "DURATION", value_parser = signed, allow_hyphen_values = true)]
    by: delayline::Shift,
}

fn signed(text: &str) -> Result<delayline::Shift, String> {
    crate::span::signed(text)
        .ok_or_else(|| "allowed is a sign and a time span, such as +10m or -2h".to_owned())
}

impl Shift {
    pub(crate) fn run(self) -> Result<(), Failure> {
        self.changed.run(Action::Shift(self.by))
    }
}
