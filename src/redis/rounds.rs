//! Few calls of the servers for many callers.

use std::sync::Arc;

use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;

use crate::defaults;

/// How many rounds are under way: the server works on one while the answers of the other travel.
const ROUNDS: usize = 2;

/// A caller with so many in one request shares its call with nobody: it would gain little.
pub(crate) const LARGE: usize = defaults::BATCH / 2;

/// Brings the requests of concurrent callers together.
///
/// It never waits for company: what comes while there is nothing to do is a round at once, and what comes while rounds are
/// under way is the next one.
#[derive(Debug)]
pub(crate) struct Rounds<R> {
    waiting: mpsc::UnboundedSender<R>,
    /// Ends with this, and the rounds under way with it.
    _starting: JoinSet<()>,
}

impl<R: Send + 'static> Rounds<R> {
    /// Has `round` do what is asked for. Within a runtime.
    pub(crate) fn start<F>(round: impl Fn(Vec<R>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (waiting, requests) = mpsc::unbounded_channel();
        let mut starting = JoinSet::new();
        starting.spawn(start_all(round, requests));
        Self {
            waiting,
            _starting: starting,
        }
    }

    /// Asks for something in the next round. If all has ended, the request is dropped, and with it whatever it answers by.
    pub(crate) fn ask(&self, request: R) {
        let _ = self.waiting.send(request);
    }
}

/// Starts a round whenever somebody waits and there may be one more.
async fn start_all<R, F>(round: impl Fn(Vec<R>) -> F, mut waiting: mpsc::UnboundedReceiver<R>)
where
    F: Future<Output = ()> + Send + 'static,
{
    let turns = Arc::new(Semaphore::new(ROUNDS));
    let mut rounds = JoinSet::new();
    let mut requests = Vec::new();
    // Before the requests: who comes until then is in the same round. The semaphore is never closed.
    while let Ok(turn) = Arc::clone(&turns).acquire_owned().await
        && waiting.recv_many(&mut requests, defaults::BATCH).await > 0
    {
        while rounds.try_join_next().is_some() {}
        let round = round(std::mem::take(&mut requests));
        rounds.spawn(async move {
            round.await;
            drop(turn);
        });
    }
}
