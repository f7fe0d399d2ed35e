//! Batches the sends of concurrent callers.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::sender::Sender;
use crate::Error;
use crate::backend::{Departure, SendError, Wake};
use crate::clock::Clock;
use crate::redis::Role;
use crate::store::batched_calls::CALLS;
use crate::store::coalescer::{Coalescer, Request, items};

type Sent = Result<(), SendError>;
type Removed = Result<(), Error>;

/// Sends and removes the wake-ups of concurrent callers together, and gives each caller its own answer.
#[derive(Debug)]
pub(super) struct Merging {
    sends: Coalescer<Departure, Sent>,
    removals: Coalescer<Wake, Removed>,
}

impl Merging {
    /// Starts it; within a runtime.
    pub(super) fn start(sender: &Arc<Sender>) -> Self {
        let clock = Clock::system();
        let (sender, remover) = (Arc::clone(sender), Arc::clone(sender));
        Self {
            sends: Coalescer::start(
                &clock,
                CALLS,
                |_| 0,
                move |requests| send(Arc::clone(&sender), requests),
            ),
            removals: Coalescer::start(
                &clock,
                CALLS,
                |_| 0,
                move |requests| remove(Arc::clone(&remover), requests),
            ),
        }
    }

    pub(super) async fn send(&self, batch: &[Departure]) -> Sent {
        let sent = self.sends.ask(batch.to_vec()).await;
        sent.unwrap_or_else(|| Err(SendError::all(batch.len(), Role::Backend.closed())))
    }

    pub(super) async fn remove(&self, wakes: &[Wake]) -> Removed {
        let removed = self.removals.ask(wakes.to_vec()).await;
        removed.unwrap_or_else(|| Err(Role::Backend.closed()))
    }
}

async fn send(sender: Arc<Sender>, requests: Vec<Request<Departure, Sent>>) {
    let sent = sender.send(&items(&requests)).await;
    let senders = requests
        .into_iter()
        .map(|request| (request.items.len(), request.answer));
    answer_senders(senders.collect(), sent);
}

async fn remove(sender: Arc<Sender>, requests: Vec<Request<Wake, Removed>>) {
    let removed = sender.remove(&items(&requests)).await;
    let removers = requests.into_iter().map(|request| request.answer);
    match removed {
        Ok(()) => removers.for_each(|answer| drop(answer.send(Ok(())))),
        Err(error) => error.tell_all(removers.collect()),
    }
}

/// Answers each caller for its own part; the last one that failed gets the error itself, with all its causes.
fn answer_senders(senders: Vec<(usize, oneshot::Sender<Sent>)>, sent: Sent) {
    let (all, cause) = match sent {
        Ok(()) => (Vec::new(), None),
        Err(SendError { failed, cause }) => (failed, Some(cause)),
    };
    let mut first = 0;
    let mut losers = Vec::new();
    for (count, answer) in senders {
        let mine = all.iter().filter(|at| (first..first + count).contains(*at));
        let failed: Vec<_> = mine.map(|at| at - first).collect();
        first += count;
        if failed.is_empty() {
            // A caller that has gone away needs no answer.
            let _ = answer.send(Ok(()));
        } else {
            losers.push((failed, answer));
        }
    }
    let Some((cause, (failed, last))) = cause.zip(losers.pop()) else {
        return;
    };
    for (failed, answer) in losers {
        let cause = cause.once_more();
        let _ = answer.send(Err(SendError { failed, cause }));
    }
    let _ = last.send(Err(SendError { failed, cause }));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_caller_hears_of_its_own_part() {
        let (answers, mut heard): (Vec<_>, Vec<_>) = (0..3).map(|_| oneshot::channel()).unzip();
        let senders = [2, 3, 1].into_iter().zip(answers).collect();
        let cause = Role::Backend.error(true, "away");
        answer_senders(
            senders,
            Err(SendError {
                failed: vec![2, 4],
                cause,
            }),
        );
        let mut next = || heard.remove(0).try_recv().expect("an answer");
        assert!(next().is_ok());
        let error = next().expect_err("two of its own failed");
        assert_eq!((error.failed, error.cause.is_transient()), (vec![0, 2], true));
        assert!(next().is_ok());
    }
}
