//! The connections that are open: how many there may be, and which of them only wait for a request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};

/// For how long the head of a request may be on its way, and the first one of a connection be waited for.
pub(super) const HEAD: Duration = Duration::from_secs(10);
/// For how long a connection may wait for its next request: longer than clients keep one that they do not use, as what is
/// sent while it is closed is lost.
pub(super) const IDLE: Duration = Duration::from_secs(120);
/// How often one that waits is closed while a new one finds none free.
const FULL: Duration = Duration::from_millis(50);

/// Counts open connections up to a limit.
///
/// Those that wait for a request make way for new ones, the longest idle first: so connections on which nothing comes keep
/// no caller out. One whose client still takes its answer is the last of them.
#[derive(Debug)]
pub(super) struct Connections {
    free: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    next: u64,
    /// In the order in which they make way.
    closing: BTreeMap<Place, Arc<Notify>>,
}

/// Where one is among those that wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    /// Whether its client has to take more of an answer.
    is_taking: bool,
    /// By when it began to wait.
    turn: u64,
}

impl Waiting {
    fn add(&mut self, is_taking: bool, closing: Arc<Notify>) -> Place {
        self.next += 1;
        let turn = self.next;
        let place = Place { is_taking, turn };
        self.closing.insert(place, closing);
        place
    }
}

impl Connections {
    pub(super) fn new(limit: usize) -> Arc<Self> {
        Arc::new(Self {
            free: Arc::new(Semaphore::new(limit.min(Semaphore::MAX_PERMITS))),
            waiting: Mutex::default(),
        })
    }

    /// Counts one more, and has others make way for it if there are as many as may be.
    pub(super) async fn open(self: &Arc<Self>) -> Arc<Usage> {
        let free = loop {
            if let Ok(free) = Arc::clone(&self.free).try_acquire_owned() {
                break free;
            }
            let longest = self.waiting().closing.pop_first();
            if let Some((_, closing)) = longest {
                closing.notify_one();
            }
            let free = Arc::clone(&self.free).acquire_owned();
            if let Ok(Ok(free)) = timeout(FULL, free).await {
                break free;
            }
        };
        let closing = Arc::new(Notify::new());
        let place = self.wait(&closing);
        Arc::new(Usage {
            all: Arc::clone(self),
            phase: Mutex::new(Phase::Waiting {
                place,
                until: Instant::now() + HEAD,
                has_begun: false,
            }),
            closing,
            _free: free,
        })
    }

    fn wait(&self, closing: &Arc<Notify>) -> Place {
        self.waiting().add(false, Arc::clone(closing))
    }

    /// Gives one another place, after all that are like it; none if it has to make way.
    fn move_on(&self, place: &mut Place, is_taking: bool) {
        let mut waiting = self.waiting();
        if let Some(closing) = waiting.closing.remove(place) {
            *place = waiting.add(is_taking, closing);
        }
    }

    /// Whether it had not to make way.
    fn has_waited(&self, place: Place) -> bool {
        self.waiting().closing.remove(&place).is_some()
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What one connection is used for at this moment.
#[derive(Debug)]
pub(super) struct Usage {
    all: Arc<Connections>,
    phase: Mutex<Phase>,
    closing: Arc<Notify>,
    _free: OwnedSemaphorePermit,
}

#[derive(Debug)]
enum Phase {
    /// For a request.
    Waiting {
        place: Place,
        until: Instant,
        /// Whether a part of its head has come.
        has_begun: bool,
    },
    /// A request is answered.
    Answering,
}

impl Usage {
    /// Notes that bytes have come.
    pub(super) fn came(&self) {
        if let Phase::Waiting { until, has_begun, .. } = &mut *self.phase()
            && !*has_begun
        {
            (*until, *has_begun) = ((*until).min(Instant::now() + HEAD), true);
        }
    }

    /// Notes that bytes of an answer have gone, or that the client has to take some before: until all have gone, no request
    /// is to be expected. What an answer holds may have ended before, as its last bytes go by themselves.
    pub(super) fn goes(&self, is_taking: bool) {
        let mut phase = self.phase();
        let Phase::Waiting {
            place,
            until,
            has_begun,
        } = &mut *phase
        else {
            return;
        };
        if place.is_taking != is_taking {
            self.all.move_on(place, is_taking);
        }
        if !*has_begun && !is_taking {
            *until = Instant::now() + IDLE;
        }
    }

    /// Notes that a request is to be answered; none if the connection has had to make way for another one.
    pub(super) fn answer(self: &Arc<Self>) -> Option<Answering> {
        let mut phase = self.phase();
        if let Phase::Waiting { place, .. } = *phase
            && !self.all.has_waited(place)
        {
            return None;
        }
        *phase = Phase::Answering;
        Some(Answering(Arc::clone(self)))
    }

    /// Until when a request is waited for, if one is.
    pub(super) fn until(&self) -> Option<Instant> {
        match *self.phase() {
            Phase::Waiting { until, .. } => Some(until),
            Phase::Answering => None,
        }
    }

    /// Whether a part of a head has come, and not yet all of it.
    pub(super) fn has_begun(&self) -> bool {
        matches!(*self.phase(), Phase::Waiting { has_begun: true, .. })
    }

    /// Waits until the connection has to make way for another one.
    pub(super) async fn closing(&self) {
        self.closing.notified().await;
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Usage {
    fn drop(&mut self) {
        if let Phase::Waiting { place, .. } = *self.phase() {
            self.all.has_waited(place);
        }
    }
}

/// A request that is answered; then its connection waits for the next one.
#[derive(Debug)]
pub(super) struct Answering(Arc<Usage>);

impl Drop for Answering {
    fn drop(&mut self) {
        let usage = &self.0;
        *usage.phase() = Phase::Waiting {
            place: usage.all.wait(&usage.closing),
            until: Instant::now() + IDLE,
            has_begun: false,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_to_close(usage: &Usage) -> bool {
        let closing = std::pin::pin!(usage.closing());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        closing.poll(&mut context).is_ready()
    }

    #[tokio::test(start_paused = true)]
    async fn the_one_that_has_waited_longest_makes_way() {
        let connections = Connections::new(3);
        let first = connections.open().await;
        let second = connections.open().await;
        let third = connections.open().await;
        // The first is idle again since a moment ago, and the second answers.
        drop(first.answer());
        let answering = second.answer().unwrap();
        let opening = tokio::spawn({
            let connections = Arc::clone(&connections);
            async move { connections.open().await }
        });
        timeout(HEAD, third.closing()).await.unwrap();
        assert!(third.answer().is_none());
        assert!(!is_to_close(&first) && !is_to_close(&second));
        drop(third);
        let _fourth = opening.await.unwrap();
        drop(answering);
        assert!(second.until().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn one_whose_client_takes_its_answer_makes_way_only_if_none_else_does() {
        let connections = Connections::new(2);
        let taking = connections.open().await;
        drop(taking.answer());
        taking.goes(true);
        let silent = connections.open().await;
        let one_more = || {
            let connections = Arc::clone(&connections);
            tokio::spawn(async move { connections.open().await })
        };
        let opening = one_more();
        timeout(HEAD, silent.closing()).await.unwrap();
        assert!(!is_to_close(&taking));
        drop(silent);
        let answering = opening.await.unwrap().answer().unwrap();
        let opening = one_more();
        timeout(HEAD, taking.closing()).await.unwrap();
        // It has to, whatever goes meanwhile.
        taking.goes(false);
        assert!(taking.answer().is_none());
        drop(taking);
        opening.await.unwrap();
        drop(answering);
    }

    #[tokio::test(start_paused = true)]
    async fn one_whose_answer_has_gone_is_idle_since_then() {
        let connections = Connections::new(2);
        let first = connections.open().await;
        drop(first.answer());
        first.goes(true);
        let second = connections.open().await;
        first.goes(false);
        let opening = tokio::spawn({
            let connections = Arc::clone(&connections);
            async move { connections.open().await }
        });
        timeout(HEAD, second.closing()).await.unwrap();
        assert!(!is_to_close(&first));
        drop(second);
        opening.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn those_that_answer_make_no_way_and_a_new_one_waits() {
        let connections = Connections::new(1);
        let only = connections.open().await;
        let answering = only.answer().unwrap();
        let opening = connections.open();
        let opening = tokio::time::timeout(Duration::from_secs(60), opening);
        assert!(opening.await.is_err());
        drop(answering);
        let makes_way = async {
            timeout(HEAD, only.closing()).await.unwrap();
            drop(only);
        };
        tokio::join!(makes_way, connections.open());
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_however_it_comes() {
        let usage = Connections::new(1).open().await;
        let begin = Instant::now();
        assert_eq!(usage.until(), Some(begin + HEAD));
        for _ in 0..3 {
            tokio::time::advance(Duration::from_secs(1)).await;
            usage.came();
        }
        assert_eq!((usage.until(), usage.has_begun()), (Some(begin + HEAD), true));
        let answering = usage.answer();
        assert_eq!((usage.until(), usage.has_begun()), (None, false));
        drop(answering);
        let idle = Instant::now();
        assert_eq!(usage.until(), Some(idle + IDLE));
        tokio::time::advance(Duration::from_secs(60)).await;
        usage.goes(false);
        assert_eq!(usage.until(), Some(Instant::now() + IDLE));
        usage.came();
        assert_eq!(usage.until(), Some(Instant::now() + HEAD));
    }
}
