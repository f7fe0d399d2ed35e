//! `delayline tasks cancel`, `reschedule`, `shift`, `run`, `redrive` and `dismiss`: of one task, or of all that match.

use delayline::Kind;
use delayline::store::{Action, Target};

use super::{Matching, One, missing};
use crate::Failure;
use crate::client::{Came, Client};
use crate::near::near;
use crate::operations::{Filter, name, state_for};
use crate::place::Place;
use crate::reason::Reason;
use crate::table::one_line;
use crate::terminal::{self, BAD, GOOD, styled};

/// So many tasks are changed without a question.
const UNASKED: usize = 100;
/// How many are counted for the question.
const COUNTED: usize = 10_000;

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
    /// Change more than 100 tasks without a question; needed where nothing can be asked
    #[arg(long, requires = "all")]
    yes: bool,
    #[command(flatten)]
    told: Told,
}

/// What is noted of a change, where its task is, and how the answer looks.
#[derive(Debug, clap::Args)]
pub(super) struct Told {
    /// Why, for the history of the task: up to 500 characters
    #[arg(long, value_name = "TEXT", value_parser = reason)]
    pub(super) reason: Option<Reason>,
    #[command(flatten)]
    pub(super) place: Place,
    /// Print JSON
    #[arg(long)]
    pub(super) json: bool,
}

fn reason(text: &str) -> Result<Reason, String> {
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
            (Some(target), _) => {
                let Told { reason, place, json } = self.told;
                let came = crate::in_runtime(async {
                    let client = place.client().await?;
                    let came = client.change(target.clone(), action, reason).await?;
                    Ok::<_, Failure>(hinted(&client, &target, came).await)
                })??;
                tell(&came, json)
            }
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

    fn change_all(self, kind: Kind, action: Action) -> Result<(), Failure> {
        crate::reserved::check_change(&kind, action == Action::Dismiss)?;
        let filter = self.matching.filter(kind.clone(), state_for(action));
        let Told { reason, place, json } = self.told;
        let (dry_run, yes) = (self.dry_run, self.yes);
        let (matched, more, answers) = crate::in_runtime(async {
            let client = place.client().await?;
            let (matched, more, answers) = if dry_run {
                let (matched, more) = client.count(&filter, action, usize::MAX).await?;
                (matched, more, None)
            } else {
                if !yes {
                    ask(&client, &filter, action).await?;
                }
                let (matched, answers) = client.change_all(filter, action, reason).await?;
                (matched, false, Some(answers))
            };
            if matched == 0
                && let Some(note) = near(&client, kind.as_str()).await
            {
                crate::note(&note);
            }
            Ok::<_, Failure>((matched, more, answers))
        })??;
        if json {
            let mut said = serde_json::json!({"matched": matched, "answers": answers});
            if more {
                said["more"] = true.into();
            }
            return crate::print(&(crate::json(&said)? + "\n"));
        }
        let mut text = format!("{matched} match{}\n", if more { ", and more" } else { "" });
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
        crate::show(&text)
    }
}

/// Asks before more than a hundred tasks are changed.
async fn ask(client: &Client, filter: &Filter, action: Action) -> Result<(), Failure> {
    let (count, more) = client.count(filter, action, COUNTED).await?;
    if count <= UNASKED {
        return Ok(());
    }
    let count = if more {
        format!("more than {count}")
    } else {
        count.to_string()
    };
    let what = format!(
        "{count} tasks match ({filter}), and {} changes them all",
        name(action)
    );
    terminal::confirm(&what, "--yes")
}

/// The same, and on standard error which kind may be meant if there is no such task.
pub(super) async fn hinted(client: &Client, target: &Target, came: Came) -> Came {
    if came.answer == "not_found"
        && let Target::Key(kind, _) = target
        && let Some(note) = near(client, kind.as_str()).await
    {
        crate::note(&note);
    }
    came
}

/// Prints what came of a change of one task; fails if nothing did.
pub(super) fn tell(came: &Came, json: bool) -> Result<(), Failure> {
    if json {
        crate::print(&(crate::json(came)? + "\n"))?;
    } else {
        crate::show(&said(came))?;
    }
    match came.is_done() {
        true => Ok(()),
        false => Err(Failure::Found("nothing was changed".to_owned())),
    }
}

/// What came of it, for people.
fn said(came: &Came) -> String {
    let word = &came.answer;
    match &came.task {
        Some(task) if word == "new" => format!("{}: it is {}\n", styled(GOOD, word), one_line(&task.id)),
        Some(task) if came.is_done() => {
            let (state, due) = (terminal::state(task.state), terminal::long(task.due_at.0));
            format!("{}: it is {state}, due {due}\n", styled(GOOD, word))
        }
        _ => format!("{}\n", styled(BAD, one_line(word))),
    }
}
