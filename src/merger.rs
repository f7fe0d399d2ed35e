//! Few calls of the store for many callers.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::debug;

use crate::store::{NewRow, Store};
use crate::store_time::{Heard, StoreTime};
use crate::turns::Turns;
use crate::{Clock, Error, Scheduled, Spawned, defaults};

/// How many rows are here at the most, waiting or in flight, before callers wait for a place.
const PLACES: usize = 10_000;
/// How many bytes of payloads and headers they have at the most; a row that is larger takes all of it.
const BYTES: usize = 64 << 20;
/// A caller with so many rows shares its calls with nobody: it would gain little, and take the others' places.
const LARGE: usize = defaults::BATCH / 2;

/// Writes the new rows of concurrent callers together, in few calls and so in few commits, and gives each caller its
/// own answer.
///
/// It never waits for company: a row that comes while there is nothing to do is a call at once, and what comes while
/// calls are in flight is the next one. The rows of one caller stay together and in order.
#[derive(Debug)]
pub(crate) struct Merger {
    writer: Arc<Writer>,
    waiting: mpsc::UnboundedSender<Request>,
    places: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    /// Ends with the merger, and the calls in flight with it.
    _merging: Spawned,
}

/// An answer for each row of a caller.
type Answered = Result<Heard<Vec<Result<Scheduled, Error>>>, Error>;

/// The rows of one caller.
#[derive(Debug)]
struct Request {
    rows: Vec<NewRow>,
    answer: oneshot::Sender<Answered>,
    _places: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl Merger {
    pub(crate) fn new(store: Arc<dyn Store>, time: Arc<StoreTime>, clock: Clock) -> Self {
        let writer = Arc::new(Writer { store, time, clock });
        let (waiting, requests) = mpsc::unbounded_channel();
        let merging = writer.clock.spawn(merge(Arc::clone(&writer), requests));
        Self {
            writer,
            waiting,
            places: Arc::new(Semaphore::new(PLACES)),
            bytes: Arc::new(Semaphore::new(BYTES)),
            _merging: merging,
        }
    }

    /// As [`Store::insert`], perhaps in one call with the rows of others. A caller that goes away before its call was
    /// made takes its rows with it; later they may be written or not.
    pub(crate) async fn insert(&self, rows: Vec<NewRow>) -> Answered {
        let count = match u32::try_from(rows.len()) {
            Ok(count) if rows.len() < LARGE => count,
            _ => return self.writer.insert(rows).await,
        };
        let places = Arc::clone(&self.places).acquire_many_owned(count).await;
        let places = places.map_err(|_| self.writer.ended())?;
        let bytes = rows.iter().map(bytes_of).sum::<usize>().min(BYTES);
        let bytes = Arc::clone(&self.bytes).acquire_many_owned(u32::try_from(bytes).unwrap_or(u32::MAX));
        let bytes = bytes.await.map_err(|_| self.writer.ended())?;
        let (answer, answered) = oneshot::channel();
        let request = Request {
            rows,
            answer,
            _places: places,
            _bytes: bytes,
        };
        self.waiting.send(request).map_err(|_| self.writer.ended())?;
        answered.await.map_err(|_| self.writer.ended())?
    }
}

/// Starts a call whenever somebody waits and there may be one more.
async fn merge(writer: Arc<Writer>, waiting: mpsc::UnboundedReceiver<Request>) {
    let mut queue = Queue { waiting, left: None };
    let turns = Turns::new(writer.clock.clone());
    let mut calls = JoinSet::new();
    loop {
        // Before the rows: who comes until then is in the same call.
        let turn = turns.next().await;
        let Some(batch) = queue.next().await else {
            return;
        };
        while calls.try_join_next().is_some() {}
        let call = {
            let writer = Arc::clone(&writer);
            async move { turn.take(writer.write(batch)).await }
        };
        writer.clock.spawn_in(&mut calls, call);
    }
}

/// The requests in the order in which they came.
struct Queue {
    waiting: mpsc::UnboundedReceiver<Request>,
    /// The first for which there was no room in the last call.
    left: Option<Request>,
}

impl Queue {
    /// Waits until somebody wants something; gives all who do, as far as they go into one call. None: the merger is
    /// gone.
    async fn next(&mut self) -> Option<Vec<Request>> {
        let mut batch: Vec<Request> = Vec::new();
        let (mut rows, mut bytes) = (0, 0);
        loop {
            let request = match self.left.take() {
                Some(left) => left,
                None if batch.is_empty() => self.waiting.recv().await?,
                None => match self.waiting.try_recv() {
                    Ok(request) => request,
                    Err(_) => return Some(batch),
                },
            };
            if request.answer.is_closed() {
                // Its caller has gone away.
                continue;
            }
            rows += request.rows.len();
            bytes += request.rows.iter().map(bytes_of).sum::<usize>();
            if !batch.is_empty() && (rows > defaults::BATCH || bytes > defaults::BATCH_BYTES) {
                self.left = Some(request);
                return Some(batch);
            }
            batch.push(request);
        }
    }
}

fn bytes_of(row: &NewRow) -> usize {
    let headers = row.headers.iter().map(|(name, value)| name.len() + value.len());
    row.payload.len() + headers.sum::<usize>()
}

/// Calls the store.
#[derive(Debug)]
struct Writer {
    store: Arc<dyn Store>,
    time: Arc<StoreTime>,
    clock: Clock,
}

impl Writer {
    /// Writes the rows of several callers, and answers each.
    async fn write(&self, batch: Vec<Request>) {
        let mut batches = vec![batch];
        while let Some(mut batch) = batches.pop() {
            let rows = batch.iter().flat_map(|request| request.rows.iter().cloned());
            match self.insert(rows.collect()).await {
                Ok(Heard { now, at, found }) => {
                    let mut found = found.into_iter();
                    for Request { rows, answer, .. } in batch {
                        let found = found.by_ref().take(rows.len()).collect();
                        // Who does not wait any more has gone away.
                        let _ = answer.send(Ok(Heard { now, at, found }));
                    }
                }
                Err(error) if batch.len() > 1 && !error.is_transient() => {
                    // One caller's row may have spoilt it: by halves, until that caller is alone with it.
                    debug!(%error, callers = batch.len(), "not written together");
                    let rest = batch.split_off(batch.len() / 2);
                    batches.extend([rest, batch]);
                }
                Err(error) => {
                    let callers = batch.into_iter().map(|request| request.answer);
                    error.tell_all(callers.collect());
                }
            }
        }
    }

    async fn insert(&self, rows: Vec<NewRow>) -> Answered {
        let count = rows.len();
        let asked = self.clock.instant();
        let heard = self.time.heard(asked, self.store.insert(rows).await?);
        if heard.found.len() == count {
            return Ok(heard);
        }
        let text = format!("{} answers for {count} rows", heard.found.len());
        Err(self.failed(text))
    }

    /// The runtime ends, or the store panicked.
    fn ended(&self) -> Error {
        self.failed("the call ended without an answer".to_owned())
    }

    fn failed(&self, text: String) -> Error {
        Error::Store {
            store: self.store.name(),
            transient: false,
            source: text.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use crate::store::MemoryStore;
    use crate::{Kind, When};

    fn row(clock: &Clock) -> NewRow {
        NewRow {
            id: clock.new_id(),
            kind: Kind::from("k"),
            key: None,
            payload: Vec::new(),
            headers: std::collections::BTreeMap::new(),
            due: When::After(Duration::ZERO),
            look_in: Duration::ZERO,
            max_attempts: None,
            replace: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_wait_for_a_place_and_give_it_back() {
        let clock = Clock::simulated(1);
        let store = Arc::new(MemoryStore::with_clock(clock.clone()));
        let time = Arc::new(StoreTime::new(clock.clone()));
        let merger = Merger::new(store, time, clock.clone());
        let second = Duration::from_secs(1);
        let taken = merger.places.acquire_many(PLACES as u32 - 1).await.unwrap();
        let two = || merger.insert(vec![row(&clock), row(&clock)]);
        assert!(clock.timeout(second, two()).await.is_none());
        // Who gave up has left nothing behind: one has room.
        let one = clock.timeout(second, merger.insert(vec![row(&clock)])).await;
        assert_eq!(one.unwrap().unwrap().found.len(), 1);
        let (two, ()) = tokio::join!(two(), async {
            clock.sleep(second).await;
            drop(taken);
        });
        assert_eq!(two.unwrap().found.len(), 2);
        // The call's task ends behind its answers.
        tokio::task::yield_now().await;
        assert_eq!(merger.places.available_permits(), PLACES);
    }
}
