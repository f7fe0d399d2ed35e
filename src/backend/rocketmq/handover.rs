//! Between the client's threads, which must be held until a batch is dealt with, and the receiver, which must not be.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use crate::backend::Arrival;
use crate::rocketmq::closed;
use crate::{Error, Wake};

/// How often foreign messages are warned about.
const WARN_EVERY: Duration = Duration::from_secs(60);

/// Hands batches of wake-ups over, and holds whoever brought one until all of it is acknowledged.
///
/// It holds no more than was brought and not yet answered, so it needs no limit of its own.
#[derive(Debug)]
pub(super) struct Handover {
    state: Mutex<State>,
    arrived: Notify,
    patience: Duration,
    foreign: AtomicU64,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Arrival>,
    open: BTreeMap<u64, Open>,
    last_ticket: u64,
    closed: bool,
    released: bool,
    /// When foreign messages were last warned about.
    warned: Option<Instant>,
}

/// A batch that is not yet acknowledged.
#[derive(Debug)]
struct Open {
    left: usize,
    /// Dropped with the batch, by which its bringer knows.
    _hold: SyncSender<Infallible>,
}

impl Handover {
    /// Nobody is held for longer than `patience`.
    pub(super) fn new(patience: Duration) -> Self {
        Self {
            state: Mutex::default(),
            arrived: Notify::new(),
            patience,
            foreign: AtomicU64::new(0),
        }
    }

    /// How many messages were no wake-ups.
    pub(super) fn foreign(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Brings a batch of messages, and blocks until its wake-ups are all acknowledged, patience ends, or the
    /// handover is released.
    pub(super) fn bring<'a>(&self, bodies: impl Iterator<Item = Option<&'a [u8]>>) {
        let mut wakes = Vec::new();
        let mut foreign = 0;
        for body in bodies {
            match body.and_then(Wake::decode) {
                Some(wake) => wakes.push(wake),
                None => foreign += 1,
            }
        }
        if foreign > 0 {
            self.count_foreign(foreign);
        }
        if wakes.is_empty() {
            return;
        }
        let (hold, held) = sync_channel(0);
        let ticket = {
            let mut state = self.state();
            if state.released {
                return;
            }
            state.last_ticket += 1;
            let ticket = state.last_ticket;
            let left = wakes.len();
            state.open.insert(ticket, Open { left, _hold: hold });
            state
                .waiting
                .extend(wakes.into_iter().map(|wake| Arrival { wake, ticket }));
            ticket
        };
        self.arrived.notify_one();
        match held.recv_timeout(self.patience) {
            Ok(never) => match never {},
            Err(RecvTimeoutError::Disconnected) => {}
            Err(RecvTimeoutError::Timeout) => {
                let mut state = self.state();
                state.open.remove(&ticket);
                // The sweep has them by now; here they would only pile up.
                state.waiting.retain(|arrival| arrival.ticket != ticket);
            }
        }
    }

    fn count_foreign(&self, count: u64) {
        let total = self.foreign.fetch_add(count, Ordering::Relaxed) + count;
        let mut state = self.state();
        if state.warned.is_none_or(|at| at.elapsed() >= WARN_EVERY) {
            state.warned = Some(Instant::now());
            drop(state);
            tracing::warn!(total, "dropped messages that are no wake-ups");
        }
    }

    /// Waits for wake-ups and takes up to `max`.
    pub(super) async fn take(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut state = self.state();
                if state.closed {
                    // For the next receiver that waits.
                    self.arrived.notify_one();
                    return Err(closed());
                }
                if !state.waiting.is_empty() {
                    let count = state.waiting.len().min(max);
                    let taken = state.waiting.drain(..count).collect();
                    if !state.waiting.is_empty() {
                        self.arrived.notify_one();
                    }
                    return Ok(taken);
                }
            }
            arrived.await;
        }
    }

    /// Counts acknowledged wake-ups down from their batches.
    pub(super) fn acknowledge(&self, arrivals: &[Arrival]) {
        let mut state = self.state();
        for Arrival { ticket, .. } in arrivals {
            // Gone, if patience ended first.
            let Some(open) = state.open.get_mut(ticket) else {
                continue;
            };
            open.left -= 1;
            if open.left == 0 {
                state.open.remove(ticket);
            }
        }
    }

    /// Ends the receivers. Whoever brought a batch is held on, so that what nobody took is not answered.
    pub(super) fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_one();
    }

    /// Ends everybody's waiting.
    pub(super) fn release(&self) {
        self.close();
        let mut state = self.state();
        state.released = true;
        state.waiting.clear();
        state.open.clear();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No holder of the lock can panic half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread::{JoinHandle, spawn};

    use super::*;
    use crate::TaskId;

    const LONG: Duration = Duration::from_secs(600);

    fn wakes(count: u8) -> Vec<Wake> {
        let wake = |byte| Wake {
            id: TaskId::from_bytes([byte; 16]),
            kind: "k".into(),
            version: 1,
        };
        (0..count).map(wake).collect()
    }

    fn bring(handover: &Arc<Handover>, bodies: Vec<Vec<u8>>) -> JoinHandle<()> {
        let handover = handover.clone();
        spawn(move || handover.bring(bodies.iter().map(|body| Some(body.as_slice()))))
    }

    fn encoded(count: u8) -> Vec<Vec<u8>> {
        wakes(count).iter().map(Wake::encode).collect()
    }

    #[tokio::test]
    async fn a_batch_is_held_until_its_last_wake_is_acknowledged() {
        let handover = Arc::new(Handover::new(LONG));
        let bringer = bring(&handover, encoded(5));
        let first = handover.take(3).await.unwrap();
        assert_eq!(first.len(), 3, "never more than asked for");
        handover.acknowledge(&first);
        let rest = handover.take(100).await.unwrap();
        assert_eq!(rest.len(), 2);
        handover.acknowledge(&rest[..1]);
        assert!(!bringer.is_finished());
        handover.acknowledge(&rest[1..]);
        joined(bringer).await;
        assert!(handover.state().open.is_empty());
    }

    #[tokio::test]
    async fn patience_ends_and_what_was_not_taken_is_forgotten() {
        let handover = Arc::new(Handover::new(Duration::from_millis(20)));
        let bringer = bring(&handover, encoded(3));
        let taken = handover.take(1).await.unwrap();
        joined(bringer).await;
        assert!(handover.state().waiting.is_empty());
        // Too late, and no harm.
        handover.acknowledge(&taken);
    }

    #[tokio::test]
    async fn foreign_messages_are_counted_and_hold_nobody() {
        let handover = Handover::new(LONG);
        let garbled = &encoded(1)[0][1..];
        handover.bring([Some(&b"hello"[..]), None, Some(&[]), Some(garbled)].into_iter());
        assert_eq!(handover.foreign(), 4);
    }

    #[tokio::test]
    async fn a_wake_among_foreign_messages_is_handed_over() {
        let handover = Arc::new(Handover::new(LONG));
        let bringer = bring(&handover, vec![b"hello".to_vec(), encoded(1).remove(0)]);
        let taken = handover.take(10).await.unwrap();
        assert_eq!(taken.len(), 1);
        handover.acknowledge(&taken);
        joined(bringer).await;
    }

    #[tokio::test]
    async fn every_receiver_that_waits_is_given_something() {
        let handover = Arc::new(Handover::new(LONG));
        let receivers = [(); 3].map(|()| {
            let handover = handover.clone();
            tokio::spawn(async move { patiently(handover.take(1)).await })
        });
        tokio::task::yield_now().await;
        let bringer = bring(&handover, encoded(3));
        for receiver in receivers {
            handover.acknowledge(&receiver.await.unwrap().unwrap());
        }
        joined(bringer).await;
    }

    #[tokio::test]
    async fn close_ends_every_receiver_and_release_every_bringer() {
        let handover = Arc::new(Handover::new(LONG));
        let receivers = [(); 3].map(|()| {
            let handover = handover.clone();
            tokio::spawn(async move { patiently(handover.take(10)).await })
        });
        tokio::task::yield_now().await;
        handover.close();
        for receiver in receivers {
            assert!(receiver.await.unwrap().is_err());
        }
        let bringer = bring(&handover, encoded(2));
        while handover.state().open.is_empty() {
            std::thread::yield_now();
        }
        assert!(!bringer.is_finished(), "what nobody took must not be answered");
        handover.release();
        joined(bringer).await;
        // One that comes later is not held.
        joined(bring(&handover, encoded(2))).await;
    }

    #[tokio::test]
    async fn an_abandoned_receive_loses_nothing() {
        let handover = Arc::new(Handover::new(LONG));
        let receive = || {
            let handover = handover.clone();
            tokio::spawn(async move { patiently(handover.take(10)).await })
        };
        let (hasty, patient) = (receive(), receive());
        tokio::task::yield_now().await;
        let bringer = bring(&handover, encoded(1));
        while handover.state().open.is_empty() {
            std::thread::yield_now();
        }
        hasty.abort();
        let taken = match hasty.await {
            Ok(taken) => taken.unwrap(),
            Err(_) => patient.await.unwrap().unwrap(),
        };
        handover.acknowledge(&taken);
        joined(bringer).await;
    }

    /// Only so that a test which would hang fails.
    async fn patiently<T>(future: impl Future<Output = T>) -> T {
        tokio::time::timeout(Duration::from_secs(60), future)
            .await
            .expect("it comes within a minute")
    }

    async fn joined(bringer: JoinHandle<()>) {
        patiently(tokio::task::spawn_blocking(|| bringer.join()))
            .await
            .unwrap()
            .unwrap();
    }
}
