//! Few calls of the servers for many callers.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use super::carrier::Carrier;
use crate::backend::{Departure, SendError};
use crate::redis::Role;
use crate::{Error, Wake, defaults};

/// How many rounds are under way: the server works on one while the answers of the other travel.
const ROUNDS: usize = 2;
/// A caller with so many shares its call with nobody: it would gain little.
pub(super) const LARGE: usize = defaults::BATCH / 2;

/// Sends and removes the wake-ups of concurrent callers together, and gives each caller its own answer.
///
/// It never waits for company: what comes while there is nothing to do is a round at once, and what comes while rounds are
/// under way is the next one.
#[derive(Debug)]
pub(super) struct Merging {
    waiting: mpsc::UnboundedSender<Request>,
    /// Ends with this, and the rounds under way with it.
    _merging: JoinSet<()>,
}

#[derive(Debug)]
enum Request {
    Send(Vec<Departure>, oneshot::Sender<Result<(), SendError>>),
    Remove(Vec<Wake>, oneshot::Sender<Result<(), Error>>),
}

impl Merging {
    /// Within a runtime.
    pub(super) fn start(carrier: Arc<Carrier>) -> Self {
        let (waiting, requests) = mpsc::unbounded_channel();
        let mut merging = JoinSet::new();
        merging.spawn(merge(carrier, requests));
        Self {
            waiting,
            _merging: merging,
        }
    }

    pub(super) async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        let (answer, answered) = oneshot::channel();
        // Should the task be gone, so is the answer.
        let _ = self.waiting.send(Request::Send(batch.to_vec(), answer));
        let ended = |_| SendError::all(batch.len(), Role::Backend.closed());
        answered.await.map_err(ended)?
    }

    pub(super) async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        let _ = self.waiting.send(Request::Remove(wakes.to_vec(), answer));
        answered.await.map_err(|_| Role::Backend.closed())?
    }
}

/// Starts a round whenever somebody waits and there may be one more.
async fn merge(carrier: Arc<Carrier>, mut waiting: mpsc::UnboundedReceiver<Request>) {
    let turns = Arc::new(Semaphore::new(ROUNDS));
    let mut rounds = JoinSet::new();
    let mut requests = Vec::new();
    // Before the requests: who comes until then is in the same round. The semaphore is never closed.
    while let Ok(turn) = Arc::clone(&turns).acquire_owned().await
        && waiting.recv_many(&mut requests, defaults::BATCH).await > 0
    {
        while rounds.try_join_next().is_some() {}
        rounds.spawn(round(Arc::clone(&carrier), std::mem::take(&mut requests), turn));
    }
}

/// Sends and removes what was asked for together.
async fn round(carrier: Arc<Carrier>, requests: Vec<Request>, _turn: OwnedSemaphorePermit) {
    let (mut departures, mut senders) = (Vec::new(), Vec::new());
    let (mut wakes, mut removers) = (Vec::new(), Vec::new());
    for request in requests {
        match request {
            // Who has gone away is not waited for any more, but what it wanted may happen.
            Request::Send(batch, answer) => {
                senders.push((batch.len(), answer));
                departures.extend(batch);
            }
            Request::Remove(batch, answer) => {
                removers.push(answer);
                wakes.extend(batch);
            }
        }
    }
    let send = async {
        if !departures.is_empty() {
            answer_senders(senders, carrier.send(&departures).await);
        }
    };
    let remove = async {
        if !wakes.is_empty() {
            answer_removers(removers, carrier.remove(&wakes).await);
        }
    };
    tokio::join!(send, remove);
}

/// Gives each caller what came of its own part; the last one that failed has the error itself, with all its causes.
fn answer_senders(
    senders: Vec<(usize, oneshot::Sender<Result<(), SendError>>)>,
    sent: Result<(), SendError>,
) {
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
            // Who has gone away needs no answer.
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

/// The same for those whose parts fail together.
fn answer_removers(mut removers: Vec<oneshot::Sender<Result<(), Error>>>, removed: Result<(), Error>) {
    let Some(last) = removers.pop() else { return };
    for answer in removers {
        let _ = answer.send(removed.as_ref().copied().map_err(Error::once_more));
    }
    let _ = last.send(removed);
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
