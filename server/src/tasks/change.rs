//! `delayline tasks cancel`, `reschedule`, `shift`, `run`, `redrive` and `dismiss`: of one task, or of all that match.

use delayline::Kind;
use delayline::store::{Action, Target};

use super::{Matching, One, missing};
use crate::Failure;
use crate::client::{ChangeOutcome, Client};
use crate::near::note_near;
use crate::operations::{Filter, TaskView, name, state_for, state_name};
use crate::place::Place;
use crate::reason::{Reason, reason};
use crate::table::one_line;
use crate::terminal::{self, GOOD, styled};

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
    #[arg(long, conflicts_with_all = ["key", "id"])]
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

impl Changed {
    pub(super) fn run(self, action: Action) -> Result<(), Failure> {
        match (self.one.target(), &self.one.kind) {
            (Some(_), _) if self.matching.is_given() => Err(missing(
                "a task is named, and a filter",
                "allowed is a filter with --all and without KEY",
            )),
            (Some(target), _) => {
                let Told { reason, place, json } = self.told;
                let outcome = crate::in_runtime(async {
                    let client = place.client().await?;
                    let outcome = client.change(target.clone(), action, reason).await?;
                    Ok::<_, Failure>(hinted(&client, &target, outcome).await)
                })??;
                print_outcome(
                    &target,
                    &outcome,
                    json,
                    (name(action), state_name(state_for(action))),
                )
            }
            (None, Some(kind)) if self.all => {
                let kind = kind.as_str().into();
                self.change_all(kind, action)
            }
            _ => Err(missing(
                "no task is named",
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
            if matched == 0 {
                note_near(&client, &[kind.as_str()]).await;
            }
            Ok::<_, Failure>((matched, more, answers))
        })??;
        let ended = answers.map_or(Ok(()), |answers| answers.none_failed().map_err(Failure::Found));
        if json {
            let mut said = serde_json::json!({"matched": matched, "answers": answers});
            if more {
                said["more"] = true.into();
            }
            crate::print(&(crate::json(&said)? + "\n"))?;
            return ended;
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
        crate::show(&text)?;
        ended
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
pub(super) async fn hinted(client: &Client, target: &Target, outcome: ChangeOutcome) -> ChangeOutcome {
    if outcome.answer == "not_found"
        && let Target::Key(kind, _) = target
    {
        note_near(client, &[kind.as_str()]).await;
    }
    outcome
}

/// Prints what came of a change of one task; fails, and says why, if nothing did. The tasks that the verb is for are
/// `wanted`.
pub(super) fn print_outcome(
    target: &Target,
    outcome: &ChangeOutcome,
    json: bool,
    (verb, wanted): (&str, &str),
) -> Result<(), Failure> {
    if json {
        crate::print(&(crate::json(outcome)? + "\n"))?;
    }
    let task = outcome.task.as_ref();
    if !outcome.is_done() {
        let why = match (task, target) {
            (None, _) => "there is no such task".to_owned(),
            (Some(other), Target::Id(id)) if other.id != id.to_string() => {
                format!(
                    "{}, which is {}, has its key",
                    one_line(&other.id),
                    state_name(other.state)
                )
            }
            (Some(task), _) if state_name(task.state) == wanted => one_line(&outcome.answer),
            (Some(task), _) => format!(
                "it is {}, and {verb} is for {wanted} tasks",
                state_name(task.state)
            ),
        };
        return Err(Failure::Found(format!("nothing was changed: {why}")));
    }
    match task {
        Some(task) if !json => crate::show(&said(outcome, task)),
        _ => Ok(()),
    }
}

/// What came of it, as the terminal shows it.
fn said(outcome: &ChangeOutcome, task: &TaskView) -> String {
    let word = styled(GOOD, &outcome.answer);
    if outcome.answer == "new" {
        return format!("{word}: it is {}\n", one_line(&task.id));
    }
    let (state, due) = (terminal::state(task.state), terminal::long(task.due_at.0));
    format!("{word}: it is {state}, due {due}\n")
}
