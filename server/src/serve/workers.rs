//! The worker that delivers tasks, and those whose place it has taken.

use std::sync::Arc;

use delayline::{Error, Worker};
use tokio::sync::{oneshot, watch};
use tokio::task::{JoinError, JoinHandle, JoinSet};

use super::test_clock::TestClock;
use crate::Failure;

type Ended = Result<Result<(), Error>, JoinError>;

/// Workers of a server, of which one takes tasks; the others end what they have begun.
pub(super) struct Workers {
    test_clock: Option<Arc<TestClock>>,
    stopping: watch::Receiver<bool>,
    working: JoinHandle<Result<(), Error>>,
    /// Tells the one that takes tasks that another does so.
    replace: oneshot::Sender<()>,
    replaced: JoinSet<Ended>,
}

impl Workers {
    /// Begins with a worker; all end when the server stops.
    pub(super) fn start(
        worker: Worker,
        test_clock: Option<Arc<TestClock>>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        let (working, replace) = start(worker, test_clock.as_deref(), &stopping);
        Self {
            test_clock,
            stopping,
            working,
            replace,
            replaced: JoinSet::new(),
        }
    }

    /// Has another worker take tasks from now on. What the one before has begun it ends as it began.
    pub(super) fn replace(&mut self, worker: Worker) {
        let (working, replace) = start(worker, self.test_clock.as_deref(), &self.stopping);
        let before = std::mem::replace(&mut self.working, working);
        // Gone only if it has ended already.
        let _ = std::mem::replace(&mut self.replace, replace).send(());
        self.replaced.spawn(before);
    }

    /// Waits until one has ended that should not have.
    pub(super) async fn ended_early(&mut self) -> Result<(), Failure> {
        loop {
            let ended = tokio::select! {
                ended = &mut self.working => return outcome_of(ended),
                Some(ended) = self.replaced.join_next() => ended.and_then(|ended| ended),
            };
            outcome_of(ended)?;
        }
    }

    /// Waits until all have ended, of a server that stops.
    pub(super) async fn have_ended(mut self) -> Result<(), Failure> {
        let mut all = outcome_of(self.working.await);
        while let Some(ended) = self.replaced.join_next().await {
            all = all.and(outcome_of(ended.and_then(|ended| ended)));
        }
        all
    }
}

fn start(
    worker: Worker,
    test_clock: Option<&TestClock>,
    stopping: &watch::Receiver<bool>,
) -> (JoinHandle<Result<(), Error>>, oneshot::Sender<()>) {
    let (replace, replaced) = oneshot::channel();
    let stopped = super::stopped(stopping.clone());
    let replaced = async {
        if replaced.await.is_err() {
            // Nothing can say so any more.
            std::future::pending().await
        }
    };
    let working = worker.run_until_replaced(replaced, stopped);
    let working = match test_clock {
        Some(test_clock) => tokio::spawn(test_clock.watch(working)),
        None => tokio::spawn(working),
    };
    (working, replace)
}

fn outcome_of(ended: Ended) -> Result<(), Failure> {
    match ended {
        Ok(ended) => Ok(ended?),
        Err(defect) => Err(Failure::Found(format!("the worker ended by a defect: {defect}"))),
    }
}
