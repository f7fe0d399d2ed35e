//! Sends of many callers in few calls.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::carrier::Carrier;
use crate::backend::{Departure, SendError};
use crate::redis::{Role, Rounds};
use crate::{Error, Wake};

/// Sends and removes the wake-ups of concurrent callers together, and gives each caller its own answer.
#[derive(Debug)]
pub(super) struct Merging(Rounds<Request>);

#[derive(Debug)]
enum Request {
    Send(Vec<Departure>, oneshot::Sender<Result<(), SendError>>),
    Remove(Vec<Wake>, oneshot::Sender<Result<(), Error>>),
}

impl Merging {
    /// Within a runtime.
    pub(super) fn start(carrier: Arc<Carrier>) -> Self {
        Self(Rounds::start(move |requests| {
            round(Arc::clone(&carrier), requests)
        }))
    }

    pub(super) async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        let (answer, answered) = oneshot::channel();
        self.0.ask(Request::Send(batch.to_vec(), answer));
        let ended = |_| SendError::all(batch.len(), Role::Backend.closed());
        answered.await.map_err(ended)?
    }

    pub(super) async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        let (answer, answered) = oneshot::channel();
        self.0.ask(Request::Remove(wakes.to_vec(), answer));
        answered.await.map_err(|_| Role::Backend.closed())?
    }
}

/// Sends and removes what was asked for together.
async fn round(carrier: Arc<Carrier>, requests: Vec<Request>) {
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
            match carrier.remove(&wakes).await {
                Ok(()) => removers.into_iter().for_each(|answer| drop(answer.send(Ok(())))),
                Err(error) => error.tell_all(removers),
            }
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
