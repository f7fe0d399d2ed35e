//! Processes the messages of a batch.

use std::collections::{BTreeMap, BTreeSet};

use delayline::{Error, Scheduler, Task, TaskId};
use futures_util::future::join_all;

use super::asked::{Asked, Name, reject};
use super::changing::change;
use super::scheduling::schedule;
use crate::serve::traces::Traces;

/// Carries out the messages that have no reply yet: those of one key one after the other, as their broker stored them,
/// and all others in as few calls of the store as possible.
///
/// A transient error of the store leaves some without a reply. They can be tried again: what was done is found again by
/// the ids. A message that the store will never accept is rejected, unless the store cannot keep even that.
pub(super) async fn deal_with(
    scheduler: &Scheduler,
    traces: &Traces,
    asked: &mut [Asked<'_>],
) -> Result<(), Error> {
    let named = named_by_id(scheduler, asked).await?;
    for round in rounds(asked, &named) {
        for (at, _) in try_round(scheduler, traces, asked, round).await? {
            // By itself: valid messages beside it may have failed with it.
            let Some((_, error)) = try_round(scheduler, traces, asked, vec![at]).await?.pop() else {
                continue;
            };
            let reason = format!("the store cannot do it: {error}");
            asked[at].reply = Some(reject(scheduler, asked[at].message, reason).await?);
        }
    }
    Ok(())
}

/// Carries out the messages at these places, and returns those that failed for good, each with its error.
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

/// Finds the tasks that verbs name by the ids of messages, if others of the batch name tasks by their keys: the key of
/// such a task is that of messages before and behind the verb.
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
            // The error is answered where the verb is carried out.
            Err(_) => {}
        }
    }
    Ok(named)
}

/// Divides the messages without a reply into rounds, so that those about one task are in different rounds, in their
/// order.
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
