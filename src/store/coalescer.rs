//! Batches concurrent calls.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tracing::debug;

use crate::Error;
use crate::clock::{Clock, Spawned};
use crate::store::batched_calls::{CallPermit, Load, run_batched};

/// How many items are here at the most, waiting or in flight, before callers wait for a place.
const PLACES: usize = 10_000;
/// How many bytes they have at the most; an item that is larger takes all of it.
const BYTES: usize = 64 << 20;

/// A caller with so many items shares its call with no other: it would gain little, and take the others' places.
pub(crate) const LARGE: usize = crate::defaults::BATCH / 2;

/// Brings what concurrent callers ask for together in few calls.
///
/// It never waits for company: what comes while there is nothing to do is a call at once, and what comes while calls are
/// in flight is the next one. The items of one caller stay together and in order. A caller that goes away before its call
/// takes its items with it; later they may have their effect or not.
///
/// It may outlive the runtime that it was started in: then it goes on in that of the next caller.
pub(crate) struct Coalescer<T, A> {
    line: Mutex<Line<T, A>>,
    begin: Box<dyn Fn() -> Line<T, A> + Send + Sync>,
    places: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    bytes_of: fn(&T) -> usize,
}

/// What takes requests, as long as its runtime lasts.
struct Line<T, A> {
    waiting: mpsc::UnboundedSender<Request<T, A>>,
    /// Ends with this, and the calls in flight with it.
    _calling: Spawned,
}

/// What one caller asks for.
#[derive(Debug)]
pub(crate) struct Request<T, A> {
    pub(crate) items: Vec<T>,
    /// A caller that does not wait any more has gone away.
    pub(crate) answer: oneshot::Sender<A>,
    load: Load,
    /// Given back with the request.
    _places: OwnedSemaphorePermit,
    _bytes: OwnedSemaphorePermit,
}

impl<T: Send + 'static, A: Send + 'static> Coalescer<T, A> {
    /// Has `call` do what is asked for, and answer each request, usually no more than `calls` at once. Within a runtime.
    pub(crate) fn start<F>(
        clock: &Clock,
        calls: usize,
        bytes_of: fn(&T) -> usize,
        call: impl Fn(Vec<Request<T, A>>) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (clock, call) = (clock.clone(), Arc::new(call));
        let begin = move || Line::begin(&clock, calls, Arc::clone(&call));
        Self {
            line: Mutex::new(begin()),
            begin: Box::new(begin),
            places: Arc::new(Semaphore::new(PLACES)),
            bytes: Arc::new(Semaphore::new(BYTES)),
            bytes_of,
        }
    }

    /// Asks for these items in the next call, and gives their answer; none if it ended without one. Waits while too much is
    /// asked for.
    pub(crate) async fn ask(&self, items: Vec<T>) -> Option<A> {
        let load = Load {
            items: items.len(),
            bytes: items.iter().map(self.bytes_of).sum(),
        };
        let places = permits(&self.places, load.items.min(PLACES)).await?;
        let bytes = permits(&self.bytes, load.bytes.min(BYTES)).await?;
        let (answer, answered) = oneshot::channel();
        let request = Request {
            items,
            answer,
            load,
            _places: places,
            _bytes: bytes,
        };
        self.send(request)?;
        answered.await.ok()
    }

    /// Sends a request. Where the runtime of what took them has ended it was not taken, and is sent in this one.
    fn send(&self, request: Request<T, A>) -> Option<()> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        let Err(mpsc::error::SendError(request)) = line.waiting.send(request) else {
            return Some(());
        };
        *line = (self.begin)();
        line.waiting.send(request).ok()
    }
}

impl<T, A> fmt::Debug for Coalescer<T, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coalescer").finish_non_exhaustive()
    }
}

impl<T: Send + 'static, A: Send + 'static> Line<T, A> {
    fn begin<F>(
        clock: &Clock,
        calls: usize,
        call: Arc<impl Fn(Vec<Request<T, A>>) -> F + Send + Sync + 'static>,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (waiting, requests) = mpsc::unbounded_channel();
        let own = clock.clone();
        let calling = clock.spawn(async move {
            let load = |request: &Request<T, A>| request.load;
            let in_turn = move |mut batch: Vec<Request<T, A>>, turn: CallPermit| {
                batch.retain(|request| !request.answer.is_closed());
                let call = (!batch.is_empty()).then(|| call(batch));
                async move {
                    if let Some(call) = call {
                        turn.take(call).await;
                    }
                }
            };
            // A call that panics leaves its callers without an answer, and the others alone.
            run_batched(&own, calls, requests, load, in_turn, drop).await;
        });
        Self {
            waiting,
            _calling: calling,
        }
    }
}

async fn permits(semaphore: &Arc<Semaphore>, count: usize) -> Option<OwnedSemaphorePermit> {
    let count = u32::try_from(count).ok()?;
    Arc::clone(semaphore).acquire_many_owned(count).await.ok()
}

/// All that is asked for, in order. With the requests, their places are held until they are answered.
pub(crate) fn items<T: Clone, A>(requests: &[Request<T, A>]) -> Vec<T> {
    requests
        .iter()
        .flat_map(|request| request.items.iter().cloned())
        .collect()
}

/// Makes one call for all requests, and sends each the answer that `answer` makes of its own part of what came; and if one
/// of them may have spoilt a call, as it fails for good, makes it again by halves, until that one is alone with its caller.
pub(crate) async fn call_by_halves<T: Clone, C: Copy, R, A, F>(
    requests: Vec<Request<T, Result<A, Error>>>,
    call: impl Fn(Vec<T>) -> F,
    answer: impl Fn(C, Vec<R>) -> A,
) where
    F: Future<Output = Result<(C, Vec<R>), Error>>,
{
    let mut batches = vec![requests];
    while let Some(mut batch) = batches.pop() {
        match call(items(&batch)).await {
            Ok((common, found)) => {
                let mut found = found.into_iter();
                for request in batch {
                    let own = found.by_ref().take(request.items.len()).collect();
                    // A caller that does not wait any more has gone away.
                    let _ = request.answer.send(Ok(answer(common, own)));
                }
            }
            Err(error) if batch.len() > 1 && !error.is_transient() => {
                debug!(%error, callers = batch.len(), "a call of many callers failed, and is made again by halves");
                let rest = batch.split_off(batch.len() / 2);
                batches.extend([rest, batch]);
            }
            Err(error) => error.tell_all(batch.into_iter().map(|request| request.answer).collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::sync::Notify;
    use tokio::task::JoinSet;
    use tokio::time::timeout;

    use super::*;
    use crate::defaults;
    use crate::store::batched_calls::CALLS;

    const SECOND: Duration = Duration::from_secs(1);

    /// Calls that wait until they are let go, and what each was asked for. None counts as slow.
    struct Held {
        coalescer: Coalescer<usize, Vec<usize>>,
        asked: Arc<Mutex<Vec<Vec<usize>>>>,
        go: Arc<Notify>,
    }

    fn held(bytes_of: fn(&usize) -> usize) -> Held {
        let (asked, go) = (Arc::<Mutex<Vec<Vec<usize>>>>::default(), Arc::new(Notify::new()));
        let (all, gate) = (Arc::clone(&asked), Arc::clone(&go));
        let coalescer = Coalescer::start(
            &Clock::system(),
            CALLS,
            bytes_of,
            move |requests: Vec<Request<_, _>>| {
                all.lock().unwrap().push(items(&requests));
                let gate = Arc::clone(&gate);
                async move {
                    gate.notified().await;
                    for Request { items, answer, .. } in requests {
                        let _ = answer.send(items);
                    }
                }
            },
        );
        Held { coalescer, asked, go }
    }

    fn no_bytes(_: &usize) -> usize {
        0
    }

    const MOMENT: Duration = Duration::from_millis(1);

    #[tokio::test(start_paused = true)]
    async fn callers_that_have_left_are_not_worked_for() {
        let Held { coalescer, asked, go } = held(no_bytes);
        // Both calls are in flight.
        for item in [1, 2] {
            assert!(timeout(MOMENT, coalescer.ask(vec![item])).await.is_err());
        }
        for item in 3..50 {
            assert!(timeout(MOMENT, coalescer.ask(vec![item])).await.is_err());
        }
        go.notify_one();
        let (stays, ()) = tokio::join!(timeout(60 * SECOND, coalescer.ask(vec![7_777])), async {
            tokio::time::sleep(MOMENT).await;
            go.notify_one();
            go.notify_one();
        });
        assert_eq!(stays, Ok(Some(vec![7_777])));
        assert_eq!(*asked.lock().unwrap(), [vec![1], vec![2], vec![7_777]]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_asks_for_more_than_there_is_room_for_waits_until_there_is() {
        let Held { coalescer, asked, go } = held(no_bytes);
        let coalescer = Arc::new(coalescer);
        let mut callers = JoinSet::new();
        let most = PLACES / LARGE;
        for item in 0..most + 5 {
            let coalescer = Arc::clone(&coalescer);
            callers.spawn(async move { coalescer.ask(vec![item; LARGE]).await });
        }
        // As many are here as can be.
        tokio::time::sleep(SECOND).await;
        assert_eq!(coalescer.places.available_permits(), PLACES - most * LARGE);
        assert!(timeout(SECOND, coalescer.ask(vec![0; LARGE])).await.is_err());
        // A caller that gave up has left nothing behind, and in the end all are answered.
        let letting_go = async {
            loop {
                go.notify_one();
                tokio::time::sleep(SECOND).await;
            }
        };
        let answers = tokio::select! {
            answers = callers.join_all() => answers,
            () = letting_go => unreachable!(),
            () = tokio::time::sleep(10_000 * SECOND) => panic!("not all are answered"),
        };
        let mut answers: Vec<_> = answers.into_iter().map(|answer| answer.unwrap()[0]).collect();
        answers.sort_unstable();
        assert!(answers.into_iter().eq(0..most + 5));
        assert_eq!(coalescer.places.available_permits(), PLACES);
        let calls = asked.lock().unwrap();
        assert!(calls.iter().all(|call| call.len() <= defaults::BATCH));
        assert_eq!(calls.iter().map(Vec::len).sum::<usize>(), (most + 5) * LARGE);
    }

    #[tokio::test(start_paused = true)]
    async fn what_waits_is_bounded_in_bytes() {
        let Held { coalescer, asked, go } = held(|item| *item);
        let coalescer = Arc::new(coalescer);
        let quarter = BYTES / 4;
        let mut callers = JoinSet::new();
        for _ in 0..6 {
            let coalescer = Arc::clone(&coalescer);
            callers.spawn(async move { coalescer.ask(vec![quarter]).await });
        }
        tokio::time::sleep(SECOND).await;
        assert_eq!(coalescer.bytes.available_permits(), 0);
        // Four fill it, and two are not heard yet.
        assert_eq!(asked.lock().unwrap().len(), 4);
        assert_eq!(coalescer.places.available_permits(), PLACES - 6);
        for left in (0..6).rev() {
            go.notify_one();
            callers.join_next().await.unwrap().unwrap().unwrap();
            assert_eq!(callers.len(), left);
        }
        assert_eq!(coalescer.bytes.available_permits(), BYTES);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_are_bounded_in_bytes_and_what_is_larger_goes_by_itself() {
        let Held { coalescer, asked, go } = held(|item| *item);
        let large = defaults::BATCH_BYTES;
        let both_in_flight = async { tokio::join!(coalescer.ask(vec![1]), coalescer.ask(vec![2])) };
        let _ = timeout(MOMENT, both_in_flight).await;
        asked.lock().unwrap().clear();
        let ask = |item| coalescer.ask(vec![item]);
        let (.., ()) = tokio::join!(ask(large / 2), ask(large / 2), ask(3 * BYTES), ask(4), async {
            for _ in 0..6 {
                tokio::time::sleep(MOMENT).await;
                go.notify_one();
            }
        });
        let calls = asked.lock().unwrap().clone();
        assert_eq!(calls, [vec![large / 2, large / 2], vec![3 * BYTES], vec![4]]);
        assert_eq!(coalescer.bytes.available_permits(), BYTES);
    }
}
