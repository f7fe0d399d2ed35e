//! The wake-ups that follow behind the rows.

use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};

use crate::router::{Router, Trip};
use crate::stats::Counters;
use crate::{Clock, Spawned, Wake, defaults};

/// Sends wake-ups behind their callers' backs, in batches, a bounded number of them waiting.
#[derive(Debug)]
pub(crate) struct Outbox {
    queue: mpsc::Sender<Errand>,
    clock: Clock,
    counters: Arc<Counters>,
    /// Ends with the outbox.
    _sending: Spawned,
}

#[derive(Debug)]
enum Errand {
    Send(Trip),
    Remove(Wake),
    /// Answers when everything before it is sent.
    Flush(oneshot::Sender<()>),
}

impl Outbox {
    pub(crate) fn new(router: Arc<Router>, clock: Clock, counters: Arc<Counters>) -> Self {
        let (queue, waiting) = mpsc::channel(defaults::OUTBOX);
        let sending = clock.spawn(send_all(router, waiting));
        Self {
            queue,
            clock,
            counters,
            _sending: sending,
        }
    }

    /// Sends wake-ups soon. Waits a little if too many are waiting; what then finds no place is left to the sweep.
    pub(crate) async fn send(&self, trips: Vec<Trip>) {
        let count = trips.len();
        let mut placed = 0;
        let place = async {
            for trip in trips {
                if self.queue.send(Errand::Send(trip)).await.is_err() {
                    break;
                }
                placed += 1;
            }
        };
        // Cut off where it stands: each place is taken or not.
        let _ = self.clock.timeout(defaults::OUTBOX_WAIT, place).await;
        self.counters.left_to_sweep.add(count - placed);
    }

    /// Removes wake-ups soon, if there is a place: it is only a courtesy.
    pub(crate) fn remove(&self, wakes: impl IntoIterator<Item = Wake>) {
        for wake in wakes {
            if self.queue.try_send(Errand::Remove(wake)).is_err() {
                break;
            }
        }
    }

    /// Waits until everything that is waiting now has been sent.
    pub(crate) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.queue.send(Errand::Flush(done)).await.is_ok() {
            // An error: the sending has ended, and nothing is waiting any more.
            let _ = flushed.await;
        }
    }
}

async fn send_all(router: Arc<Router>, mut waiting: mpsc::Receiver<Errand>) {
    let mut errands = Vec::with_capacity(defaults::BATCH);
    while waiting.recv_many(&mut errands, defaults::BATCH).await > 0 {
        let mut trips = Vec::with_capacity(errands.len());
        let mut wakes = Vec::new();
        let mut flushes = Vec::new();
        for errand in errands.drain(..) {
            match errand {
                Errand::Send(trip) => trips.push(trip),
                Errand::Remove(wake) => wakes.push(wake),
                Errand::Flush(done) => flushes.push(done),
            }
        }
        // In any order: a wake-up that is removed is of an older version than the one sent after it.
        router.send(trips).await;
        if !wakes.is_empty() {
            router.remove(&wakes).await;
        }
        for done in flushes {
            let _ = done.send(());
        }
    }
}
