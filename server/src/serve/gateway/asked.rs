//! Holds a message with its request and its answer.

use delayline::rocketmq::Received;
use delayline::{Edit, Error, Key, Kind, NewTask, Scheduled, Scheduler, Task, TaskId, Timestamp};

use super::answer::Reply;
use super::found_task::ORIGIN;
use super::origin::{Origin, id_of};
use super::request::{Action, Request, body};
use super::{delivery, rejected};
use crate::serve::config::Gateway;
use crate::serve::traces::Place;

/// A message, its request, and the answer.
pub(super) struct Asked {
    pub(super) message: Received,
    pub(super) origin: Origin,
    pub(super) request: Result<Request, String>,
    /// How many bytes a message may have that is published.
    pub(super) longest: usize,
    /// None: not answered yet.
    pub(super) reply: Option<Reply>,
}

impl Asked {
    /// Reads the request; its delay counts from this time.
    pub(super) fn read(message: Received, from: Timestamp, gateway: &Gateway) -> Self {
        Self {
            origin: Origin::of(&message),
            request: Request::read(&message, from, gateway),
            message,
            longest: usize::MAX,
            reply: None,
        }
    }
}

/// The name by which messages address the same task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Name<'a> {
    Id(TaskId),
    Key(&'a Kind, &'a Key),
}

impl Asked {
    /// Returns how it names a task: by the id of a message, and by a key.
    pub(super) fn names(&self) -> (Option<TaskId>, Option<Name<'_>>) {
        let request = self.request.as_ref().ok();
        let id = request.map_or(Some(self.id()), |request| match request.action {
            Action::Schedule { .. } => Some(self.id()),
            _ => request.of,
        });
        let key = request.and_then(|request| Some(Name::Key(&request.kind, request.key.as_ref()?)));
        (id, key)
    }

    /// Returns the id of the message's own task.
    pub(super) fn id(&self) -> TaskId {
        id_of(&self.message.topic, &self.message.id)
    }

    /// Says whether a task is to be written: for rejected messages too, so that they are seen.
    pub(super) fn is_to_be_scheduled(&self) -> bool {
        match &self.request {
            Ok(request) => matches!(request.action, Action::Schedule { .. }),
            Err(_) => true,
        }
    }

    /// Returns its producer's place in a trace.
    pub(super) fn place(&self) -> Option<Place> {
        Place::of(|name| {
            let mut properties = self.message.user_properties();
            properties.find_map(|(given, value)| (given == name).then_some(value))
        })
    }

    /// Makes the task of a message that is to be scheduled; or says why it cannot be.
    pub(super) fn task(&self) -> Result<NewTask, String> {
        let request = self.request.as_ref().map_err(String::clone)?;
        let Action::Schedule { target, due, .. } = &request.action else {
            return Err("it schedules nothing".to_owned());
        };
        let task = delivery::task(&self.message, body(&self.message)?, request, target, *due);
        Ok(task.id(self.id()).header(ORIGIN, self.origin.to_string()))
    }

    /// Makes the edit that gives the message of a task the body of this one; or says why it could not be published then.
    pub(super) fn edit(&self, task: &Task, due: Option<Timestamp>) -> Result<Edit, String> {
        let body = body(&self.message)?;
        delivery::check_edited(self.longest, &self.message, task, body)?;
        let edit = Edit::payload_bytes(body);
        Ok(match due {
            Some(due) => edit.at(due),
            None => edit,
        })
    }
}

/// Keeps a rejected message, and makes the reply to it.
pub(super) async fn reject(
    scheduler: &Scheduler,
    message: &Received,
    reason: String,
) -> Result<Reply, Error> {
    let answer = scheduler.schedule(rejected_task(message, &reason)).await;
    kept(scheduler, message, reason, answer).await
}

/// Makes the reply to a rejected message, once it is kept. One that has come before is answered as it was then: it may
/// have been scheduled, and still comes out.
pub(super) async fn kept(
    scheduler: &Scheduler,
    message: &Received,
    reason: String,
    answer: Result<Scheduled, Error>,
) -> Result<Reply, Error> {
    match answer {
        Err(error) if !error.is_transient() => {
            rejected::keep_plainly(
                scheduler,
                message,
                id_of(&message.topic, &message.id),
                &reason,
                &error,
            )
            .await?;
        }
        answer => {
            if let Scheduled::Existing(task) = answer? {
                return Ok(Reply::again(task));
            }
        }
    }
    Ok(Reply::rejected(reason))
}

pub(super) fn rejected_task(message: &Received, reason: &str) -> NewTask {
    rejected::task(message, reason).id(id_of(&message.topic, &message.id))
}
