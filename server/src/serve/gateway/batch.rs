//! What is done with the messages of a batch.

use std::collections::BTreeMap;

use delayline::rocketmq::Received;
use delayline::store::{Action as Change, Expect, Target};
use delayline::{Answer, Error, Key, Kind, NewTask, Scheduled, Scheduler, TaskId};
use futures_util::future::join_all;

use super::answer::Reply;
use super::request::{Action, Request};
use super::{delivery, overtaken, rejected};
use crate::serve::config::Gateway;
use crate::serve::derived_id::derived_id;
use crate::serve::traces::{Place, Traces};

/// A message, what it asks for, and what came of it.
pub(super) struct Asked<'a> {
    pub(super) message: &'a Received,
    pub(super) request: Result<Request, String>,
    /// None: that is not known yet.
    pub(super) reply: Option<Reply>,
}

impl<'a> Asked<'a> {
    pub(super) fn read(message: &'a Received, gateway: &Gateway) -> Self {
        Self {
            message,
            request: Request::read(message, gateway),
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
    for round in rounds(asked) {
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
        change(scheduler, asked, &verbs)
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

/// The places of messages without a reply, so that those of one key are in different rounds, in their order.
fn rounds(asked: &[Asked<'_>]) -> Vec<Vec<usize>> {
    let mut rounds: Vec<Vec<usize>> = Vec::new();
    let mut next: BTreeMap<(&Kind, &Key), usize> = BTreeMap::new();
    for (at, asked) in asked
        .iter()
        .enumerate()
        .filter(|(_, asked)| asked.reply.is_none())
    {
        let named = asked.request.as_ref().ok().and_then(Request::named);
        let round = match named {
            Some(named) => {
                let next = next.entry(named).or_default();
                *next += 1;
                *next - 1
            }
            None => 0,
        };
        if rounds.len() <= round {
            rounds.resize_with(round + 1, Vec::new);
        }
        rounds[round].push(at);
    }
    rounds
}

impl Request {
    fn named(&self) -> Option<(&Kind, &Key)> {
        Some((&self.kind, self.key.as_ref()?))
    }
}

impl Asked<'_> {
    /// What is rejected is scheduled as well, to be seen.
    fn is_to_be_scheduled(&self) -> bool {
        match &self.request {
            Ok(request) => matches!(request.action, Action::Schedule { .. }),
            Err(_) => true,
        }
    }

    /// Where its producer stood in a trace.
    fn place(&self) -> Option<Place> {
        Place::of(|name| {
            let mut properties = self.message.user_properties();
            properties.find_map(|(given, value)| (given == name).then_some(value))
        })
    }

    /// The task of a message that is to be scheduled; or why it cannot be.
    fn task(&self) -> Result<NewTask, String> {
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
        Ok(delivery::task(self.message, body, request, target, *due).id(id_of(self.message)))
    }
}

async fn schedule(
    scheduler: &Scheduler,
    traces: &Traces,
    asked: &[Asked<'_>],
    places: &[usize],
) -> Vec<Result<Reply, Error>> {
    let mut tasks = Vec::with_capacity(places.len());
    let mut spans = Vec::with_capacity(places.len());
    let mut reasons = Vec::with_capacity(places.len());
    for &at in places {
        let (task, reason) = match asked[at].task() {
            Ok(task) => (task, None),
            Err(reason) => (rejected_task(asked[at].message, &reason), Some(reason)),
        };
        let kind = asked[at]
            .request
            .as_ref()
            .map_or(rejected::KIND, |request| request.kind.as_str());
        let span = traces.create(kind, asked[at].place());
        tasks.push(span.kept_by(task));
        spans.push(span);
        reasons.push(reason);
    }
    let answers = scheduler.schedule_each(tasks).await;
    for (span, answer) in spans.into_iter().zip(&answers) {
        span.ends(answer);
    }
    let came = places.iter().zip(reasons).zip(answers);
    join_all(came.map(|((&at, reason), answer)| after_schedule(scheduler, &asked[at], reason, answer))).await
}

async fn after_schedule(
    scheduler: &Scheduler,
    asked: &Asked<'_>,
    rejected: Option<String>,
    answer: Result<Scheduled, Error>,
) -> Result<Reply, Error> {
    if let Some(reason) = rejected {
        return kept(scheduler, asked.message, reason, answer).await;
    }
    let scheduled = match answer {
        Err(error) if error.is_invalid() => return reject(scheduler, asked.message, error.to_string()).await,
        answer => answer?,
    };
    let Ok(Request {
        key: Some(key),
        action: Action::Schedule { replace, .. },
        ..
    }) = &asked.request
    else {
        return Ok(Reply::scheduled(scheduled, false));
    };
    match &scheduled {
        Scheduled::Existing(mark) if overtaken::is_mark(mark) => {
            if overtaken::is_for(mark, &asked.message.id) {
                scheduler
                    .schedule(overtaken::met(mark, key, &asked.message.id))
                    .await?;
                return Ok(Reply::cancelled());
            }
            let instead = scheduler.schedule(again(asked)?).await?;
            Ok(Reply::scheduled(instead, true))
        }
        // Only now, for a mark would have been replaced unseen.
        Scheduled::Existing(task) if *replace && task.id != id_of(asked.message) => {
            let replaced = scheduler.schedule(again(asked)?).await?;
            Ok(Reply::scheduled(replaced, false))
        }
        _ => Ok(Reply::scheduled(scheduled, false)),
    }
}

/// The same task, in the place of the one that there is.
fn again(asked: &Asked<'_>) -> Result<NewTask, Error> {
    let task = asked.task().map_err(|reason| Error::Invalid {
        field: "message",
        value: asked.message.id.clone(),
        allowed: reason,
    })?;
    Ok(task.replace())
}

impl Asked<'_> {
    /// What is changed in one call with others; a shift has to look first.
    fn change(&self) -> Option<(Target, Expect, Change)> {
        let request = self.request.as_ref().ok()?;
        let (kind, key) = request.named()?;
        let change = match request.action {
            Action::Cancel => Change::Cancel,
            Action::Run => Change::RunNow,
            Action::Reschedule(due) => Change::Reschedule(due.into()),
            Action::Shift(_) | Action::Schedule { .. } => return None,
        };
        Some((Target::Key(kind.clone(), key.clone()), Expect::Anything, change))
    }
}

async fn change(scheduler: &Scheduler, asked: &[Asked<'_>], places: &[usize]) -> Vec<Result<Reply, Error>> {
    let changes: Vec<_> = places.iter().map(|&at| asked[at].change()).collect();
    let is_together: Vec<_> = changes.iter().map(Option::is_some).collect();
    let mut answers = scheduler
        .change_each(changes.into_iter().flatten())
        .await
        .into_iter();
    let came = places.iter().zip(is_together).map(|(&at, is_together)| {
        let answer = is_together.then(|| answers.next()).flatten();
        after_change(scheduler, &asked[at], answer)
    });
    join_all(came).await
}

async fn after_change(
    scheduler: &Scheduler,
    asked: &Asked<'_>,
    answer: Option<Result<Answer, Error>>,
) -> Result<Reply, Error> {
    let Ok(request) = &asked.request else {
        return Ok(Reply::rejected("it cannot be read".to_owned()));
    };
    let Some((kind, key)) = request.named() else {
        return Ok(Reply::rejected("it names no task".to_owned()));
    };
    let answer = match (&request.action, answer) {
        (Action::Cancel, Some(Ok(answer))) => return after_cancel(scheduler, kind, key, answer).await,
        (Action::Shift(by), _) => scheduler.shift((kind.clone(), key.clone()), *by).await,
        (_, Some(answer)) => answer,
        (_, None) => return Ok(Reply::rejected("it changes nothing".to_owned())),
    };
    match answer {
        Ok(answer) => Ok(Reply::changed(answer)),
        Err(error) if error.is_invalid() => reject(scheduler, asked.message, error.to_string()).await,
        Err(error) => Err(error),
    }
}

/// Where there was nothing to cancel yet, a mark is left.
async fn after_cancel(
    scheduler: &Scheduler,
    kind: &Kind,
    key: &Key,
    mut answer: Answer,
) -> Result<Reply, Error> {
    loop {
        let was_mark =
            matches!(&answer, Answer::Done(task) | Answer::Finished(task) if overtaken::is_mark(task));
        if !was_mark && !matches!(answer, Answer::NotFound) {
            return Ok(Reply::changed(answer));
        }
        match scheduler.schedule(overtaken::mark(kind, key)).await? {
            // It has been scheduled between the two.
            Scheduled::Existing(task) if !overtaken::is_mark(&task) => {}
            Scheduled::Running(_) => {}
            _ => return Ok(Reply::changed(Answer::NotFound)),
        }
        answer = scheduler.cancel((kind.clone(), key.clone())).await?;
    }
}

async fn reject(scheduler: &Scheduler, message: &Received, reason: String) -> Result<Reply, Error> {
    let answer = scheduler.schedule(rejected_task(message, &reason)).await;
    kept(scheduler, message, reason, answer).await
}

/// The reply to a message that is rejected, once it is kept.
async fn kept(
    scheduler: &Scheduler,
    message: &Received,
    reason: String,
    answer: Result<Scheduled, Error>,
) -> Result<Reply, Error> {
    match answer {
        Err(error) if !error.is_transient() => {
            rejected::keep_plainly(scheduler, message, id_of(message), &reason, &error).await?;
        }
        answer => drop(answer?),
    }
    Ok(Reply::rejected(reason))
}

fn rejected_task(message: &Received, reason: &str) -> NewTask {
    rejected::task(message, reason).id(id_of(message))
}

/// The id of the task of a message, the same whenever it comes again: of the topic and the id that its producer gave it.
fn id_of(message: &Received) -> TaskId {
    derived_id([message.topic.as_bytes(), message.id.as_bytes()], &[])
}
