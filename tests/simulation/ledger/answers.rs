//! What callers asked for, held to what they were told and to the rows.

use std::time::Duration;

use delayline::store::{Target, When};
use delayline::{Answer, Key, Kind, Scheduled, Shift, State, Task, TaskId};

use super::{Ledger, Story, short};
use crate::model::Cause;
use delayline::store::Verb;

/// What a caller asked for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    Schedule {
        id: TaskId,
        kind: Kind,
        key: Option<Key>,
        payload: Vec<u8>,
        due: When,
        replace: bool,
    },
    Reschedule(Target, When),
    Shift(Target, Shift),
    /// To another payload, and perhaps another time.
    Edit(Target, u64, Option<When>),
    RunNow(Target),
    Cancel(Target),
    Dismiss(Target),
    Redrive(Target),
}

impl Asked {
    fn target(&self) -> Option<&Target> {
        match self {
            Self::Schedule { .. } => None,
            Self::Reschedule(target, _)
            | Self::Shift(target, _)
            | Self::Edit(target, ..)
            | Self::RunNow(target)
            | Self::Cancel(target)
            | Self::Dismiss(target)
            | Self::Redrive(target) => Some(target),
        }
    }
}

impl Ledger {
    /// A caller has scheduled, and was answered; `asked_at` is when it asked.
    pub(crate) fn scheduled(&self, asked: &Asked, asked_at: Duration, answer: &Scheduled) {
        let task = answer.task();
        let name = match answer {
            Scheduled::New(_) => "New",
            Scheduled::Replaced(_) => "Replaced",
            Scheduled::Existing(_) => "Existing",
            Scheduled::Running(_) => "Running",
        };
        self.note(|| format!("told of {}: {name} v{}", short(task.id), task.version));
        let Asked::Schedule {
            id,
            kind,
            key,
            payload,
            due,
            replace,
        } = asked
        else {
            return;
        };
        let is_meant = task.kind == *kind && (task.id == *id || key.is_some() && task.key == *key);
        let wrong = {
            let book = self.book();
            let seen = book
                .stories
                .get(&task.id)
                .and_then(|story| story.versions.get(&task.version));
            let as_asked = task.payload == *payload && is_due(task, *due);
            let cause = seen.map(|seen| &seen.cause);
            let right = match answer {
                Scheduled::New(_) => task.id == *id && as_asked && cause == Some(&Cause::Inserted),
                Scheduled::Replaced(_) => *replace && as_asked && cause == Some(&Cause::Replaced),
                Scheduled::Existing(_) => true,
                Scheduled::Running(_) => task.state == State::Running,
            };
            let was_true = book
                .stories
                .get(&task.id)
                .is_some_and(|story| was_so(story, task, asked_at));
            (!(right && was_true && is_meant))
                .then(|| format!("{asked:?} was answered {answer:?}; its row: {seen:?}"))
        };
        if let Some(text) = wrong {
            self.broken("3 definite answers", text);
        }
        if let Scheduled::Replaced(task) = answer {
            self.fence(task);
        }
    }

    /// A caller has asked for a change, and was answered.
    pub(crate) fn changed(&self, asked: &Asked, asked_at: Duration, answer: &Answer) {
        let Some(target) = asked.target() else {
            return;
        };
        let version = answer.task().map(|task| (short(task.id), task.version));
        self.note(|| format!("told of {asked:?}: {version:?} done {}", answer.is_done()));
        let right = match answer.task() {
            None => self.check_not_found(target, asked_at),
            Some(task) => self.check_change(asked, target, asked_at, answer, task),
        };
        if let Err(why) = right {
            self.broken(
                "3 definite answers",
                format!("{asked:?} was answered {answer:?}: {why}"),
            );
        }
        if let Answer::Done(task) = answer {
            self.fence(task);
        }
    }

    /// Whatever it was before never starts from here on.
    fn fence(&self, task: &Task) {
        let mut book = self.book();
        let story = book.stories.entry(task.id).or_default();
        story.fence = story.fence.max(task.version);
    }

    fn check_not_found(&self, target: &Target, asked_at: Duration) -> Result<(), String> {
        let book = self.book();
        let is_meant = |id: &TaskId, task: &Task| match target {
            Target::Id(target) => id == target,
            Target::Key(kind, key) => task.kind == *kind && task.key.as_ref() == Some(key),
        };
        for (id, story) in book.stories.iter().filter(|(_, story)| !story.purged) {
            if let Some((_, first)) = story.versions.first_key_value()
                && is_meant(id, &first.task)
                && first.at < asked_at
            {
                return Err(format!("there is {:?}", first.task));
            }
        }
        Ok(())
    }

    fn check_change(
        &self,
        asked: &Asked,
        target: &Target,
        asked_at: Duration,
        answer: &Answer,
        task: &Task,
    ) -> Result<(), String> {
        let is_meant = match target {
            Target::Id(id) => task.id == *id,
            Target::Key(kind, key) => task.kind == *kind && task.key.as_ref() == Some(key),
        };
        // Redrive names the row that has the key.
        let is_other = matches!((asked, answer), (Asked::Redrive(_), Answer::Conflict(_)));
        if !is_meant && !is_other {
            return Err("that is another task".to_owned());
        }
        let book = self.book();
        let Some(story) = book.stories.get(&task.id) else {
            return Err("there is no such row".to_owned());
        };
        if !was_so(story, task, asked_at) {
            let seen = story.versions.get(&task.version);
            return Err(format!("it was not so since {asked_at:?}: {seen:?}"));
        }
        let cause = &story.versions[&task.version].cause;
        let as_asked = match answer {
            Answer::Done(_) => match asked {
                Asked::Schedule { .. } => false,
                Asked::Reschedule(_, due) => {
                    is_due(task, *due) && matches!(cause, Cause::Changed(Verb::Reschedule { .. }))
                }
                Asked::RunNow(_) => {
                    task.due_at == task.updated_at && matches!(cause, Cause::Changed(Verb::RunNow { .. }))
                }
                Asked::Redrive(_) => {
                    task.due_at == task.updated_at && matches!(cause, Cause::Changed(Verb::Redrive { .. }))
                }
                Asked::Cancel(_) => task.state == State::Cancelled && *cause == Cause::Changed(Verb::Cancel),
                Asked::Dismiss(_) => {
                    task.state == State::Cancelled && *cause == Cause::Changed(Verb::Dismiss)
                }
                Asked::Edit(_, number, due) => {
                    let is_as_before = |due_at| {
                        let mut before = story.versions.range(..task.version);
                        before.any(|(_, seen)| seen.task.due_at == due_at)
                    };
                    task.payload == number.to_string().as_bytes()
                        && due.map_or_else(|| is_as_before(task.due_at), |due| is_due(task, due))
                        && matches!(cause, Cause::Changed(Verb::Edit { .. }))
                }
                Asked::Shift(_, by) => is_shifted(story, task, *by, self.plan.steps > 0),
            },
            Answer::TooLate(_) => task.state == State::Running,
            Answer::Finished(_) => !task.state.is_live(),
            Answer::Conflict(_) => matches!(asked, Asked::Shift(..) | Asked::Redrive(_) | Asked::Dismiss(_)),
            Answer::NotFound => true,
        };
        match as_asked {
            true => Ok(()),
            false => Err(format!("its row came about by {cause:?}")),
        }
    }
}

/// Whether a task was as an answer says at some moment since the caller asked.
fn was_so(story: &Story, task: &Task, asked_at: Duration) -> bool {
    let Some(seen) = story.versions.get(&task.version) else {
        return false;
    };
    // A later version that is older is of a row that had this id before, and was purged.
    let mut later = story.versions.range(task.version + 1..);
    let next = later.find(|(_, next)| next.at >= seen.at);
    let lasted = next.is_none_or(|(_, next)| next.at >= asked_at);
    let same = |one: &Task, other: &Task| {
        // A renewal moves these without a transition.
        let mut one = one.clone();
        (one.wake_at, one.started, one.updated_at) = (other.wake_at, other.started, other.updated_at);
        one == *other
    };
    lasted && same(&seen.task, task)
}

/// Whether a task that was just written is due when its caller said.
fn is_due(task: &Task, due: When) -> bool {
    match due {
        When::After(delay) => task.due_at == task.updated_at.after(delay),
        When::At(time) => task.due_at == time,
    }
}

/// Whether it is by so much later or earlier than it was before, or now since that has passed; or had, before the clock was
/// stepped.
fn is_shifted(story: &Story, task: &Task, by: Shift, steps: bool) -> bool {
    let millis = |by: Duration| i64::try_from(by.as_millis()).unwrap();
    let by = match by {
        Shift::Later(by) => millis(by),
        Shift::Earlier(by) => -millis(by),
        other => panic!("{other:?} is not known here"),
    };
    let mut before = story.versions.range(..task.version);
    before.any(|(_, seen)| {
        let due_at = seen.task.due_at.shifted(by);
        task.due_at == due_at || task.due_at == task.updated_at && (due_at <= task.due_at || steps)
    })
}
