//! Carries out messages that change an existing task.

use delayline::store::Target;
use delayline::{Answer, Error, Scheduled, Scheduler};

use super::answer::Reply;
use super::asked::{Asked, reject};
use super::found_task::{FoundTask, with_verbs};
use super::request::{Action, Request};
use super::{overtaken, rejected};

/// Carries out a verb, if it has not been done already and no later message came first.
pub(super) async fn change(scheduler: &Scheduler, asked: &Asked) -> Result<Reply, Error> {
    let Ok(request) = &asked.request else {
        return Ok(Reply::rejected("it cannot be read".to_owned()));
    };
    let Some(target) = request.about() else {
        return Ok(Reply::rejected("it names no task".to_owned()));
    };
    let origin = &asked.origin;
    let by_message = scheduler.because(&origin.to_string());
    loop {
        let Some(known) = FoundTask::find(scheduler, &target, origin).await? else {
            if request.action != Action::Cancel
                || leave_mark(scheduler, asked, request, &target, None).await?
            {
                return Ok(Reply::changed(Answer::NotFound));
            }
            continue;
        };
        if overtaken::is_mark(&known.task) {
            let is_old = request.action == Action::Cancel && !known.is_made_no_earlier(origin);
            if !is_old || is_renewed(&by_message, asked, request, &target, &known).await? {
                return Ok(Reply::changed(Answer::NotFound));
            }
            continue;
        }
        if let Some(answer) = settled(&known, asked) {
            return Ok(Reply::changed(answer));
        }
        if let Some(earlier) = known.changed_before(origin) {
            let earlier = scheduler.find(earlier).await?;
            return Ok(Reply::changed(
                earlier.map_or(Answer::Conflict(known.task), Answer::Done),
            ));
        }
        let (id, expect) = (known.task.id, known.as_found());
        let answer = match request.action {
            Action::Cancel => by_message.cancel_if(id, expect).await,
            Action::Run => by_message.run_now_if(id, expect).await,
            Action::Reschedule(due) => by_message.reschedule_if(id, expect, due).await,
            Action::Shift(by) => by_message.shift_if(id, expect, by).await,
            Action::Edit(due) => match asked.edit(&known.task, due) {
                Ok(edit) => by_message.edit_if(id, expect, edit).await,
                Err(reason) => return reject(scheduler, &asked.message, reason).await,
            },
            Action::Schedule { .. } => return Ok(Reply::rejected("it changes nothing".to_owned())),
        };
        match answer {
            // It has changed since: perhaps by a message that is later than this one.
            Ok(Answer::Conflict(_)) => {}
            Ok(answer) => return Ok(Reply::changed(answer)),
            Err(error) if error.is_invalid() => {
                return reject(scheduler, &asked.message, error.to_string()).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Returns the answer for a task that is not to be changed.
fn settled(known: &FoundTask, asked: &Asked) -> Option<Answer> {
    let task = known.task.clone();
    if known.is_done {
        return Some(Answer::Done(task));
    }
    if task.kind.as_str() == rejected::KIND {
        return Some(Answer::Finished(task));
    }
    known.is_past(&asked.origin).then_some(Answer::Conflict(task))
}

/// Keeps a cancel for messages that were sent before it; false, where there is a task now.
async fn leave_mark(
    scheduler: &Scheduler,
    asked: &Asked,
    request: &Request,
    target: &Target,
    verbs: Option<String>,
) -> Result<bool, Error> {
    let mark = with_verbs(overtaken::mark(&request.kind, target, &asked.origin), verbs);
    Ok(matches!(scheduler.schedule(mark).await?, Scheduled::New(_)))
}

/// Replaces the mark of an earlier cancel by that of a later one; false, where that has changed. The mark of a
/// message's id is for that message alone, and so as good as another one.
async fn is_renewed(
    by_message: &Scheduler,
    asked: &Asked,
    request: &Request,
    target: &Target,
    mark: &FoundTask,
) -> Result<bool, Error> {
    if matches!(target, Target::Id(_)) {
        return Ok(true);
    }
    if mark.task.state.is_live()
        && !by_message
            .cancel_if(mark.task.id, mark.as_found())
            .await?
            .is_done()
    {
        return Ok(false);
    }
    leave_mark(by_message, asked, request, target, mark.verbs()).await
}
