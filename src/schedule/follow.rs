//! Collects the wake-ups that follow from a verb.

use crate::backend::Wake;
use crate::store::receipt::Follow;
use crate::store::store_time::Timed;
use crate::task::due_wake::DueWake;
use crate::{Answer, Scheduled, State, Task};

impl Follow {
    pub(super) fn scheduled<'a, T>(heard: &Timed<T>, answers: impl Iterator<Item = &'a Scheduled>) -> Self {
        let mut follow = Self::default();
        for scheduled in answers {
            match scheduled {
                Scheduled::New(task) => follow.due_wakes.push(due_wake(heard, task)),
                Scheduled::Replaced(task) => {
                    follow.due_wakes.push(due_wake(heard, task));
                    follow.obsolete.push(before(task));
                }
                Scheduled::Existing(_) | Scheduled::Running(_) => {}
            }
        }
        follow
    }

    pub(super) fn changed<'a, T>(heard: &Timed<T>, answers: impl Iterator<Item = &'a Answer>) -> Self {
        let mut follow = Self::default();
        for answer in answers {
            let Answer::Done(task) = answer else {
                continue;
            };
            follow.obsolete.push(before(task));
            if task.state == State::Scheduled {
                follow.due_wakes.push(due_wake(heard, task));
            }
        }
        follow
    }
}

/// The wake-up of a task as it now is.
pub(crate) fn due_wake<T>(heard: &Timed<T>, task: &Task) -> DueWake {
    let wake = Wake {
        id: task.id,
        kind: task.kind.clone(),
        version: task.version,
    };
    DueWake {
        wake,
        due: heard.instant_of(task.due_at),
    }
}

/// The wake-up of a task as it was before its last transition, which is of no use any more.
fn before(task: &Task) -> Wake {
    Wake {
        id: task.id,
        kind: task.kind.clone(),
        version: task.version.saturating_sub(1),
    }
}
