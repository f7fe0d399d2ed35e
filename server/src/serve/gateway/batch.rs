//! Processes the messages of a batch.

use std::collections::{BTreeMap, BTreeSet};

use delayline::{Error, Scheduler, Task, TaskId};
use futures_util::future::join_all;

use super::asked::{Asked, Name, reject};
use super::changing::change;
use super::scheduling::schedule;
use crate::serve::traces::Traces;

/// The task of an id, as the store knows it.
type Found = Result<Option<Task>, Error>;

/// Carries out the messages from the place `first` on that have no reply yet: those of one key one after the other, as
/// their broker stored them, and all others in as few calls of the store as possible.
///
/// A transient error of the store leaves a message without a reply, and all behind it that are about the same task; the
/// last such error is returned. They can be tried again: what was done is found again by the ids. A message that the
/// store will never accept is rejected, unless the store cannot keep even that.
pub(super) async fn deal_with(
    scheduler: &Scheduler,
    traces: &Traces,
    asked: &mut [Asked],
    first: usize,
) -> Result<(), Error> {
    let found = named_by_id(scheduler, asked).await;
    let rounds = rounds(asked, first, &found);
    let mut unknown = found.into_values().filter_map(Result::err);
    let mut done = unknown.find(Error::is_transient).map_or(Ok(()), Err);
    for round in rounds {
        let is_next = |turn: &Turn| turn.behind.iter().all(|&at| asked[at].reply.is_some());
        let round = round.into_iter().filter(is_next).map(|turn| turn.at).collect();
        for (at, error) in try_round(scheduler, traces, asked, round).await {
            let tried = match error.is_transient() {
                true => Err(error),
                false => try_alone(scheduler, traces, asked, at).await,
            };
            done = tried.and(done);
        }
    }
    done
}

/// Carries out a message by itself, as valid ones beside it may have failed with it, or rejects it.
async fn try_alone(
    scheduler: &Scheduler,
    traces: &Traces,
    asked: &mut [Asked],
    at: usize,
) -> Result<(), Error> {
    match try_round(scheduler, traces, asked, vec![at]).await.pop() {
        None => Ok(()),
        Some((_, error)) if error.is_transient() => Err(error),
        Some((_, error)) => {
            let reason = format!("the store cannot do it: {error}");
            asked[at].reply = Some(reject(scheduler, &asked[at].message, reason).await?);
            Ok(())
        }
    }
}

/// Carries out the messages at these places, and returns those that failed, each with its error.
async fn try_round(
    scheduler: &Scheduler,
    traces: &Traces,
    asked: &mut [Asked],
    round: Vec<usize>,
) -> Vec<(usize, Error)> {
    let (schedules, verbs): (Vec<_>, Vec<_>) =
        round.into_iter().partition(|&at| asked[at].is_to_be_scheduled());
    let (scheduled, changed) = tokio::join!(
        schedule(scheduler, traces, asked, &schedules),
        join_all(verbs.iter().map(|&at| change(scheduler, &asked[at])))
    );
    let mut failed = Vec::new();
    let came = schedules
        .into_iter()
        .zip(scheduled)
        .chain(verbs.into_iter().zip(changed));
    for (at, reply) in came {
        match reply {
            Ok(reply) => asked[at].reply = Some(reply),
            Err(error) => failed.push((at, error)),
        }
    }
    failed
}

/// Finds the tasks that verbs name by the ids of messages, if others of the batch name tasks by their keys: the key of
/// such a task is that of messages before and behind the verb.
async fn named_by_id(scheduler: &Scheduler, asked: &[Asked]) -> BTreeMap<TaskId, Found> {
    let waiting = || asked.iter().filter(|asked| asked.reply.is_none());
    if !waiting().any(|asked| asked.names().1.is_some()) {
        return BTreeMap::new();
    }
    let ids: BTreeSet<_> = waiting()
        .filter_map(|asked| asked.request.as_ref().ok()?.of)
        .collect();
    let found = ids
        .into_iter()
        .map(|id| async move { (id, scheduler.find(id).await) });
    join_all(found).await.into_iter().collect()
}

/// A message that is to be carried out.
struct Turn {
    at: usize,
    /// The places of the last messages before it that are about the same task, or may be: it comes after their replies.
    behind: Vec<usize>,
}

/// Divides the messages from the place `first` on without a reply into rounds, so that those about one task are in
/// different rounds, in their order.
fn rounds(asked: &[Asked], first: usize, found: &BTreeMap<TaskId, Found>) -> Vec<Vec<Turn>> {
    let mut rounds: Vec<Vec<Turn>> = Vec::new();
    // By what they name: the last message's round and place.
    let mut last: BTreeMap<Name<'_>, (usize, usize)> = BTreeMap::new();
    // The same of a verb whose task may have any key, as it cannot be found for now.
    let mut last_unknown = None;
    let mut keys: BTreeMap<TaskId, Name<'_>> = found
        .values()
        .filter_map(|found| {
            let task = found.as_ref().ok()?.as_ref()?;
            Some((task.id, Name::Key(&task.kind, task.key.as_ref()?)))
        })
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
        let is_unknown = key.is_none()
            && id.and_then(|id| found.get(&id)).is_some_and(|found| {
                // Any other error is answered where the verb is carried out.
                found.as_ref().is_err_and(Error::is_transient)
            });
        let names = [id.map(Name::Id), key];
        let before = names.iter().flatten().filter_map(|name| last.get(name));
        let before: Vec<_> = before.copied().chain(key.and(last_unknown)).collect();
        let round = before.iter().map(|(round, _)| round + 1).max().unwrap_or(0);
        last.extend(names.into_iter().flatten().map(|name| (name, (round, at))));
        if is_unknown {
            last_unknown = Some((round, at));
        }
        if is_unknown || at < first {
            continue;
        }
        if rounds.len() <= round {
            rounds.resize_with(round + 1, Vec::new);
        }
        let behind = before.into_iter().map(|(_, at)| at).collect();
        rounds[round].push(Turn { at, behind });
    }
    rounds
}

#[cfg(test)]
mod tests {
    use delayline::Timestamp;
    use delayline::rocketmq::Received;

    use super::*;
    use crate::serve::config::{Gateway, Targets};
    use crate::serve::gateway::origin::id_of;

    fn asked(id: &str, properties: &[(&str, &str)]) -> Asked {
        let gateway = Gateway {
            targets: Targets::try_from(vec!["out".to_owned()]).unwrap(),
            ..Gateway::default()
        };
        let mut message = Received::new("in", id, Timestamp::from_millis(0), *b"{}");
        for (name, value) in [("DELAYLINE_TOPIC", "out"), ("DELAYLINE_AFTER", "1h")]
            .iter()
            .chain(properties)
        {
            message.properties.insert((*name).to_owned(), (*value).to_owned());
        }
        let asked = Asked::read(message, Timestamp::from_millis(0), &gateway);
        assert!(asked.request.is_ok(), "{:?}", asked.request);
        asked
    }

    /// Which messages are tried, in which round, and behind which others.
    fn tried(
        asked: &[Asked],
        first: usize,
        found: &BTreeMap<TaskId, Found>,
    ) -> Vec<Vec<(usize, Vec<usize>)>> {
        let round = |round: Vec<Turn>| round.into_iter().map(|turn| (turn.at, turn.behind)).collect();
        rounds(asked, first, found).into_iter().map(round).collect()
    }

    #[test]
    fn what_waits_is_not_tried_and_those_of_its_key_are_behind_it() {
        let keyed = |id, key| asked(id, &[("DELAYLINE_KEY", key)]);
        let asked = [keyed("1", "a"), keyed("2", "a"), keyed("3", "b"), asked("4", &[])];
        let found = BTreeMap::new();
        assert_eq!(
            tried(&asked, 1, &found),
            [vec![(2, vec![]), (3, vec![])], vec![(1, vec![0])]]
        );
    }

    /// The key of its task may be that of any message behind it.
    #[test]
    fn behind_a_verb_whose_task_cannot_be_found_for_now_are_all_that_have_a_key() {
        let keyed = |id, key| asked(id, &[("DELAYLINE_KEY", key)]);
        let shift = [("DELAYLINE_ACTION", "shift"), ("DELAYLINE_MESSAGE_ID", "0")];
        let asked = [
            keyed("1", "a"),
            asked("2", &shift),
            keyed("3", "b"),
            asked("4", &[]),
            keyed("5", "a"),
        ];
        let found = |transient| {
            let away = Error::Store {
                store: "s",
                transient,
                source: "away".into(),
            };
            BTreeMap::from([(id_of("in", "0"), Err(away))])
        };
        assert_eq!(
            tried(&asked, 0, &found(true)),
            [
                vec![(0, vec![]), (3, vec![])],
                vec![(2, vec![1]), (4, vec![0, 1])]
            ]
        );
        // Any other error is its own.
        assert_eq!(
            tried(&asked, 0, &found(false)),
            [
                vec![(0, vec![]), (1, vec![]), (2, vec![]), (3, vec![])],
                vec![(4, vec![0])]
            ]
        );
    }
}
