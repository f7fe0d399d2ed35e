//! Schedules messages.
//!
//! A message is found again by the id of its task, so one that comes twice is scheduled once. One with a key first
//! reads the task of that key: a task that a later message has made or changed is not replaced, and a message that was
//! cancelled later is not scheduled. A task that is replaced is cancelled, and the new one has the id of its own
//! message: so another server that does the same at the same time, or again after this one was killed, comes to the
//! same end.

use std::time::Duration;

use delayline::store::Target;
use delayline::{Error, NewTask, Scheduled, Scheduler, State};
use futures_util::future::join_all;

use super::answer::Reply;
use super::asked::{Asked, kept, reject, rejected_task};
use super::found_task::{FoundTask, with_verbs};
use super::request::{Action, Request};
use super::{overtaken, rejected};
use crate::serve::traces::Traces;

/// The pause before a key is tried again that another message has just taken.
const AGAIN: Duration = Duration::from_millis(10);

/// The next step for a message.
enum Next {
    /// Write its task.
    Write(Write),
    /// Write nothing, and answer this.
    Answer(Box<Reply>),
}

/// How the task of a message is written.
#[derive(Default)]
struct Write {
    replaces: bool,
    /// The messages that have changed earlier tasks of its key.
    verbs: Option<String>,
}

impl Next {
    fn write(replaces: bool, before: &FoundTask) -> Self {
        Self::Write(Write {
            replaces,
            verbs: before.verbs(),
        })
    }

    fn answer(reply: Reply) -> Self {
        Self::Answer(Box::new(reply))
    }
}

/// Schedules messages, and keeps rejected ones, to be seen: in as few calls of the store as possible.
pub(super) async fn schedule(
    scheduler: &Scheduler,
    traces: &Traces,
    asked: &[Asked],
    places: &[usize],
) -> Vec<Result<Reply, Error>> {
    let looked = join_all(places.iter().map(|&at| look(scheduler, &asked[at]))).await;
    // The replies to written ones follow.
    let (mut told, mut written) = (Vec::with_capacity(places.len()), Vec::new());
    let (mut tasks, mut spans) = (Vec::new(), Vec::new());
    for (&at, next) in places.iter().zip(looked) {
        let asked = &asked[at];
        match next {
            Ok(Next::Write(Write { replaces, verbs })) => {
                let (task, rejected) = asked.to_write(verbs);
                let kind = asked.request.as_ref();
                let kind = kind.map_or(rejected::KIND, |request| request.kind.as_str());
                let span = traces.create(kind, asked.place());
                tasks.push(span.kept_by(task));
                spans.push(span);
                written.push((asked, rejected, replaces));
                told.push(None);
            }
            Ok(Next::Answer(reply)) => told.push(Some(Ok(*reply))),
            Err(error) => told.push(Some(Err(error))),
        }
    }
    let answers = scheduler.schedule_each(tasks).await;
    for (span, answer) in spans.into_iter().zip(&answers) {
        span.ends(answer);
    }
    let written = written.into_iter().zip(answers);
    let replies = written.map(|((asked, rejected, replaces), answer)| async move {
        match rejected {
            Some(reason) => kept(scheduler, &asked.message, reason, answer).await,
            None => after_schedule(scheduler, asked, replaces, answer).await,
        }
    });
    let mut replies = join_all(replies).await.into_iter();
    let each = told
        .into_iter()
        .filter_map(|told| told.or_else(|| replies.next()));
    each.collect()
}

async fn after_schedule(
    scheduler: &Scheduler,
    asked: &Asked,
    mut replaces: bool,
    mut answer: Result<Scheduled, Error>,
) -> Result<Reply, Error> {
    loop {
        let scheduled = match answer {
            Err(error) if error.is_invalid() => {
                return reject(scheduler, &asked.message, error.to_string()).await;
            }
            answer => answer?,
        };
        match scheduled {
            Scheduled::New(task) | Scheduled::Replaced(task) => return Ok(Reply::new(task, replaces)),
            Scheduled::Existing(task) | Scheduled::Running(task) if task.id == asked.id() => {
                return Ok(Reply::again(task));
            }
            // Another one was quicker to take the key, or a cancel that was kept for it is about to end.
            Scheduled::Existing(_) | Scheduled::Running(_) => tokio::time::sleep(AGAIN).await,
        }
        let write = match look(scheduler, asked).await? {
            Next::Answer(reply) => return Ok(*reply),
            Next::Write(write) => write,
        };
        replaces = write.replaces;
        answer = scheduler.schedule(asked.to_write(write.verbs).0).await;
    }
}

/// Reads the task of a message's key, and cancels it where the message is to take its place.
async fn look(scheduler: &Scheduler, asked: &Asked) -> Result<Next, Error> {
    let Ok(Request {
        key: Some(key),
        kind,
        action: Action::Schedule { replace, .. },
        ..
    }) = &asked.request
    else {
        return Ok(Next::Write(Write::default()));
    };
    let (origin, target) = (&asked.origin, Target::Key(kind.clone(), key.clone()));
    loop {
        let known = match FoundTask::find(scheduler, &target, origin).await {
            Ok(Some(known)) => known,
            Err(error) if error.is_transient() => return Err(error),
            // Also beside one that cannot be read: where that has not ended, the store refuses the new one.
            Ok(None) | Err(_) => return Ok(Next::Write(Write::default())),
        };
        let task = &known.task;
        if task.id == asked.id() {
            return Ok(Next::answer(Reply::again(known.task)));
        }
        let is_mark = overtaken::is_mark(task);
        let is_over = match is_mark {
            true => known.is_made_no_earlier(origin),
            false => known.is_past(origin),
        };
        let takes_its_place = task.state == State::Scheduled && (is_mark || *replace);
        if (is_over || takes_its_place)
            && let Some(own) = scheduler.find(asked.id()).await?
        {
            return Ok(Next::answer(Reply::again(own)));
        }
        if is_over && is_mark {
            return Ok(Next::answer(Reply::cancelled()));
        }
        if takes_its_place && !is_over {
            let by_message = scheduler.because(&origin.to_string());
            if by_message.cancel_if(task.id, known.as_found()).await?.is_done() {
                return Ok(Next::write(!is_mark, &known));
            }
            continue;
        }
        return Ok(match task.state {
            State::Running if !is_mark => Next::answer(Reply::running(known.task)),
            State::Scheduled if !*replace => Next::answer(Reply::existing(known.task)),
            _ if is_over => Next::answer(Reply::conflict(known.task)),
            // Cancelled for this message, which was then interrupted.
            State::Cancelled if known.is_done && !is_mark => Next::write(true, &known),
            _ => Next::write(false, &known),
        });
    }
}

impl Asked {
    /// Returns the task of the message, or the one that keeps it and says why it is rejected.
    fn to_write(&self, verbs: Option<String>) -> (NewTask, Option<String>) {
        match self.task() {
            Ok(task) => (with_verbs(task, verbs), None),
            Err(reason) => (rejected_task(&self.message, &reason), Some(reason)),
        }
    }
}
