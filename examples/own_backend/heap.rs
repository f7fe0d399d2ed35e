//! Wake-ups in a heap of this process.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use delayline::Error;
use delayline::backend::{Arrival, Backend, Delays, Departure, Reach, SendError, Wake};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

const NAME: &str = "heap";

/// Carries wake-ups in a heap of this process, the next one on top.
#[derive(Debug)]
pub(crate) struct HeapBackend {
    /// None once it has been closed.
    heap: Mutex<Option<Heap>>,
    /// Notified when there is an earlier one on top, or nothing to wait for any more.
    changed: Notify,
}

type Heap = BinaryHeap<Reverse<(Instant, Wake)>>;

impl HeapBackend {
    /// Makes an empty one.
    pub(crate) fn new() -> Self {
        Self {
            heap: Mutex::new(Some(Heap::new())),
            changed: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Heap>> {
        // A panic in the middle loses wake-ups at the worst, and a backend may lose them: the sweep finds the rows.
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with_heap<T>(&self, change: impl FnOnce(&mut Heap) -> T) -> Result<T, Error> {
        self.lock().as_mut().map(change).ok_or_else(|| Error::Backend {
            backend: NAME,
            // A caller that waits for it to open again waits in vain.
            transient: false,
            source: "it has been closed".into(),
        })
    }
}

#[async_trait]
impl Backend for HeapBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn delays(&self) -> Delays {
        Delays {
            reach: Reach::Any {
                max: Duration::from_secs(30 * 86_400),
            },
            usual_lateness: Duration::from_millis(50),
        }
    }

    async fn send(&self, batch: &[Departure]) -> Result<(), SendError> {
        let now = Instant::now();
        let sent = batch
            .iter()
            .map(|departure| Reverse((now + departure.delay, departure.wake.clone())));
        self.with_heap(|heap| heap.extend(sent))
            .map_err(|closed| SendError::all(batch.len(), closed))?;
        self.changed.notify_waiters();
        Ok(())
    }

    async fn remove(&self, wakes: &[Wake]) -> Result<(), Error> {
        self.with_heap(|heap| heap.retain(|Reverse((_, wake))| !wakes.contains(wake)))
    }

    /// Nothing is taken out before the last await, so a call that is dropped loses nothing.
    async fn receive(&self, max: usize) -> Result<Vec<Arrival>, Error> {
        loop {
            // Before the check, so that no change after it is missed.
            let changed = self.changed.notified();
            let (arrived, next) = self.with_heap(|heap| take(heap, max))?;
            if !arrived.is_empty() {
                return Ok(arrived);
            }
            match next {
                Some(next) => timeout_at(next, changed).await.unwrap_or_default(),
                None => changed.await,
            }
        }
    }

    /// Does nothing: a taken wake-up does not come again.
    async fn acknowledge(&self, _: Vec<Arrival>) {}

    async fn health(&self) -> Result<(), Error> {
        self.with_heap(|_| ())
    }

    async fn close(&self) -> Result<(), Error> {
        self.lock().take();
        self.changed.notify_waiters();
        Ok(())
    }
}

/// Takes up to `max` whose time has come; returns the time of the next one.
fn take(heap: &mut Heap, max: usize) -> (Vec<Arrival>, Option<Instant>) {
    let now = Instant::now();
    let mut arrived = Vec::new();
    while let Some(Reverse((at, _))) = heap.peek() {
        if *at > now || arrived.len() == max {
            return (arrived, Some(*at));
        }
        let ticket = 0;
        arrived.extend(heap.pop().map(|Reverse((_, wake))| Arrival { wake, ticket }));
    }
    (arrived, None)
}
