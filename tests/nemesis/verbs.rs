//! Runs verbs, and records the answers.

use delayline::store::{Receipt, Target, Transaction, When};
use delayline::{Answer, Error, NewTask, Scheduled, Scheduler, Shift, State, Task};

/// A request about a task.
#[derive(Debug)]
pub(crate) enum Ask {
    Schedule(NewTask),
    Move(When),
    Shift(Shift),
    RunNow,
    Cancel,
}

/// An answer to a caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// It is now so.
    Changed(Changed),
    /// It is unchanged, for this reason.
    Not(&'static str),
    /// There is no such task.
    NotFound,
    /// The caller took it back itself.
    RolledBack,
    /// Nothing, or an error: it is not known whether it was done.
    Unknown(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Changed {
    pub(crate) id: delayline::TaskId,
    pub(crate) version: u64,
    /// In ms.
    pub(crate) planned_at: i64,
}

impl From<&Task> for Changed {
    fn from(task: &Task) -> Self {
        Self {
            id: task.id,
            version: task.version,
            planned_at: task.planned_at.as_millis(),
        }
    }
}

impl Said {
    /// It was done by a try whose answer was lost. The row is shown as it is now; what a worker has done to it since is
    /// not the caller's doing.
    fn by_a_lost_try(task: &Task) -> Self {
        Self::Changed(Changed {
            version: 0,
            ..Changed::from(task)
        })
    }
}

impl From<&Task> for Said {
    fn from(task: &Task) -> Self {
        Self::Changed(task.into())
    }
}

impl From<&Scheduled> for Said {
    fn from(scheduled: &Scheduled) -> Self {
        match scheduled {
            Scheduled::Replaced(task) if task.state != State::Scheduled => Self::by_a_lost_try(task),
            Scheduled::New(task) | Scheduled::Replaced(task) => task.into(),
            Scheduled::Existing(task) => Self::by_a_lost_try(task),
            Scheduled::Running(_) => Self::Not("it is running"),
        }
    }
}

impl From<&Answer> for Said {
    fn from(answer: &Answer) -> Self {
        match answer {
            Answer::Done(task) if !matches!(task.state, State::Scheduled | State::Cancelled) => {
                Self::by_a_lost_try(task)
            }
            Answer::Done(task) => task.into(),
            Answer::TooLate(_) => Self::Not("it is running"),
            Answer::Finished(_) => Self::Not("it has ended"),
            Answer::Conflict(_) => Self::Not("it is otherwise"),
            Answer::NotFound => Self::NotFound,
        }
    }
}

pub(crate) async fn ask(scheduler: &Scheduler, target: Target, ask: Ask) -> Result<Said, Error> {
    Ok(match ask {
        Ask::Schedule(task) => (&scheduler.schedule(task).await?).into(),
        Ask::Move(due) => (&scheduler.reschedule(target, due).await?).into(),
        Ask::Shift(by) => (&scheduler.shift(target, by).await?).into(),
        Ask::RunNow => (&scheduler.run_now(target).await?).into(),
        Ask::Cancel => (&scheduler.cancel(target).await?).into(),
    })
}

/// A request within a transaction, which takes effect when that commits.
pub(crate) enum Asked {
    Scheduled(Receipt<Scheduled>),
    Answered(Receipt<Answer>),
}

impl Asked {
    pub(crate) fn said(&self) -> Said {
        match self {
            Self::Scheduled(receipt) => receipt.answer().into(),
            Self::Answered(receipt) => receipt.answer().into(),
        }
    }

    pub(crate) async fn committed(self, scheduler: &Scheduler) {
        match self {
            Self::Scheduled(receipt) => drop(scheduler.committed(receipt).await),
            Self::Answered(receipt) => drop(scheduler.committed(receipt).await),
        }
    }
}

pub(crate) async fn ask_in(
    scheduler: &Scheduler,
    transaction: impl Transaction,
    target: Target,
    ask: Ask,
) -> Result<Asked, Error> {
    Ok(match ask {
        Ask::Schedule(task) => Asked::Scheduled(scheduler.schedule_in(transaction, task).await?),
        Ask::Move(due) => Asked::Answered(scheduler.reschedule_in(transaction, target, due).await?),
        Ask::Shift(by) => Asked::Answered(scheduler.shift_in(transaction, target, by).await?),
        Ask::RunNow => Asked::Answered(scheduler.run_now_in(transaction, target).await?),
        Ask::Cancel => Asked::Answered(scheduler.cancel_in(transaction, target).await?),
    })
}
