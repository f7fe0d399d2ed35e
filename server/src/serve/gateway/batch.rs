//! What is done with the messages of a batch.

use std::collections::{BTreeMap, BTreeSet};

use delayline::rocketmq::Received;
use delayline::{Error, Key, Kind, NewTask, Scheduled, Scheduler, Task, TaskId, Timestamp};
use futures_util::future::join_all;

use super::answer::Reply;
use super::changing::change;
use super::known::ORIGIN;
use super::origin::{Origin, id_of};
use super::request::{Action, Request};
use super::scheduling::schedule;
use super::{delivery, rejected};
use crate::serve::config::Gateway;
use crate::serve::traces::{Place, Traces};

/// A message, what it asks for, and what came of it.
pub(super) struct Asked<'a> {
    pub(super) message: &'a Received,
    pub(super) origin: Origin,
    pub(super) request: Result<Request, String>,
    /// None: that is not known yet.
    pub(super) reply: Option<Reply>,
}

impl<'a> Asked<'a> {
    /// Its delay counts from when its broker stored it, or from another time.
    pub(super) fn read(message: &'a Received, gateway: &Gateway, from: Option<Timestamp>) -> Self {
        let request = match from {
            None => Request::read(message, gateway),
            Some(from) => {
                let mut message = message.clone();
                message.stored_at = from;
                Request::read(&message, gateway)
            }
        };
        Self {
            message,
            origin: Origin::of(message),
            request,
            reply: None,
        }
    }
}

/// Does what the messages ask for that have no reply yet: those of one key one after the other, as their broker stored
/// them, and all others in as few calls of the store as there can be.
///
/// An error of the store that may pass leaves some without a reply. They can be tried again: what was done is found again by
/// the ids. One that the store will never do what it asks for is rejected, unless the store cannot keep even that.
pub(super) async fn deal_with(
    scheduler: &Scheduler,
    traces: &Traces,
    asked: &mut [Asked<'_>],
) -> Result<(), Error> {
    let named = named_by_id(scheduler, asked).await?;
    for round in rounds(asked, &named) {
        for (at, _) in try_round(scheduler, traces, asked, round).await? {
            // Alone: beside it others may have failed that nothing is wrong with.
            let Some((_, error)) = try_round(scheduler, traces, asked, vec![at]).await?.pop() else {
                continue;
            };
            let reason = format!("the store cannot do it: {error}");
            asked[at].reply = Some(reject(scheduler, asked[at].message, reason).await?);
        }
    }
    Ok(())
}

/// Does what the messages at these places ask for, and gives those that failed for good, each with its error.
async fn try_round(
    scheduler: &Scheduler,
    traces: &Traces,
    asked: &mut [Asked<'_>],
    round: Vec<usize>,
) -> Result<Vec<(usize, Error)>, Error> {
    let (schedules, verbs): (Vec<_>, Vec<_>) =
        round.into_iter().partition(|&at| asked[at].is_to_be_scheduled());
    let (scheduled, changed) = tokio::join!(
        schedule(scheduler, traces, asked, &schedules),
        join_all(verbs.iter().map(|&at| change(scheduler, &asked[at])))
    );
    let (mut refused, mut failed) = (Vec::new(), None);
    let came = schedules
        .into_iter()
        .zip(scheduled)
        .chain(verbs.into_iter().zip(changed));
    for (at, reply) in came {
        match reply {
            Ok(reply) => asked[at].reply = Some(reply),
            Err(error) if error.is_transient() => failed = Some(error),
            Err(error) => refused.push((at, error)),
        }
    }
    match failed {
        Some(error) => Err(error),
        None => Ok(refused),
    }
}

/// The tasks that verbs name by the ids of messages, if others of the batch name tasks by their keys: the key of such a task
/// is that of messages before and behind the verb.
async fn named_by_id(scheduler: &Scheduler, asked: &[Asked<'_>]) -> Result<Vec<Task>, Error> {
    let waiting = || asked.iter().filter(|asked| asked.reply.is_none());
    if !waiting().any(|asked| asked.names().1.is_some()) {
        return Ok(Vec::new());
    }
    let ids: BTreeSet<_> = waiting()
        .filter_map(|asked| asked.request.as_ref().ok()?.of)
        .collect();
    let mut named = Vec::new();
    for found in join_all(ids.into_iter().map(|id| scheduler.find(id))).await {
        match found {
            Ok(task) => named.extend(task),
            Err(error) if error.is_transient() => return Err(error),
            // Told where the verb is dealt with.
            Err(_) => {}
        }
    }
    Ok(named)
}

/// The places of messages without a reply, so that those about one task are in different rounds, in their order.
fn rounds(asked: &[Asked<'_>], named: &[Task]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut next: BTreeMap<Name<'_>, usize> = BTreeMap::new();
    let named = named.iter();
    let mut keys: BTreeMap<TaskId, Name<'_>> = named
        .filter_map(|task| Some((task.id, Name::Key(&task.kind, task.key.as_ref()?))))
        .collect();
    for (at, asked) in asked
        .iter()
        .enumerate()
        .filter(|(_, asked)| asked.reply.is_none())
    {
        let (id, key) = asked.names();
        // A verb that names a message by its id is about the key of that as well.
        let key = key.or_else(|| keys.get(&id?).copied());
        if let (Some(id), Some(key)) = (id, key) {
            keys.insert(id, key);
        }
        let names = [id.map(Name::Id), key];
        let after = names.iter().flatten().filter_map(|name| next.get(name));
        let round = after.max().copied().unwrap_or(0);
        next.extend(names.into_iter().flatten().map(|name| (name, round + 1)));
        if rounds.len() <= round {
            rounds.resize_with(round + 1, Vec::new);
        }
        rounds[round].push(at);
    }
    rounds
}

/// By what messages name the same task.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Name<'a> {
    Id(TaskId),
    Key(&'a Kind, &'a Key),
}

impl Asked<'_> {
    fn names(&self) -> (Option<TaskId>, Option<Name<'_>>) {
        let request = self.request.as_ref().ok();
        let id = request.map_or(Some(self.id()), |request| match request.action {
            Action::Schedule { .. } => Some(self.id()),
            _ => request.of,
        });
        let key = request.and_then(|request| Some(Name::Key(&request.kind, request.key.as_ref()?)));
        (id, key)
    }

    /// The id of the message's own task.
    pub(super) fn id(&self) -> TaskId {
        id_of(&self.message.topic, &self.message.id)
    }

    /// What is rejected is scheduled as well, to be seen.
    fn is_to_be_scheduled(&self) -> bool {
        match &self.request {
            Ok(request) => matches!(request.action, Action::Schedule { .. }),
            Err(_) => true,
        }
    }

    /// Where its producer stood in a trace.
    pub(super) fn place(&self) -> Option<Place> {
        Place::of(|name| {
            let mut properties = self.message.user_properties();
            properties.find_map(|(given, value)| (given == name).then_some(value))
        })
    }

    /// The task of a message that is to be scheduled; or why it cannot be.
    pub(super) fn task(&self) -> Result<NewTask, String> {
        let request = self.request.as_ref().map_err(String::clone)?;
        let Action::Schedule { target, due, .. } = &request.action else {
            return Err("it schedules nothing".to_owned());
        };
        let body = match &self.message.body {
            Ok(body) if body.is_empty() => {
                return Err("its body is empty: allowed are 1 byte and more".to_owned());
            }
            Ok(body) => body,
            Err(reason) => return Err(format!("its body cannot be kept: {reason}")),
        };
        let task = delivery::task(self.message, body, request, target, *due);
        Ok(task.id(self.id()).header(ORIGIN, self.origin.to_string()))
    }
}

pub(super) async fn reject(
    scheduler: &Scheduler,
    message: &Received,
    reason: String,
) -> Result<Reply, Error> {
    let answer = scheduler.schedule(rejected_task(message, &reason)).await;
    kept(scheduler, message, reason, answer).await
}

/// The reply to a message that is rejected, once it is kept.
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
        answer => drop(answer?),
    }
    Ok(Reply::rejected(reason))
}

pub(super) fn rejected_task(message: &Received, reason: &str) -> NewTask {
    rejected::task(message, reason).id(id_of(&message.topic, &message.id))
}
