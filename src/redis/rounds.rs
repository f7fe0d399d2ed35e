//! Few calls of the servers for many callers.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::task::JoinSet;

use crate::defaults;

/// How many rounds are under way: the server works on one while the answers of the other travel.
const ROUNDS: usize = 2;
/// How many things may be asked for at the most, waiting or under way, before callers wait for a place.
const PLACES: usize = 10_000;

/// A caller with so many in one request shares its call with nobody: it would gain little.
pub(crate) const LARGE: usize = defaults::BATCH / 2;

/// Brings the requests of concurrent callers together.
///
/// It never waits for company: what comes while there is nothing to do is a round at once, and what comes while rounds are
/// under way is the next one. A caller that goes away before its round takes its request with it.
#[derive(Debug)]
pub(crate) struct Rounds<W, A> {
    waiting: mpsc::UnboundedSender<Request<W, A>>,
    places: Arc<Semaphore>,
    /// Ends with this, and the rounds under way with it.
    _starting: JoinSet<()>,
}

/// What one caller asks for.
#[derive(Debug)]
pub(crate) struct Request<W, A> {
    pub(crate) work: W,
    /// Who does not wait any more has gone away.
    pub(crate) answer: oneshot::Sender<A>,
    /// Given back with the request.
    _places: OwnedSemaphorePermit,
}

impl<W: Send + 'static, A: Send + 'static> Rounds<W, A> {
    /// Has `round` do what is asked for, and answer each request. Within a runtime.
    pub(crate) fn start<F>(round: impl Fn(Vec<Request<W, A>>) -> F + Send + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (waiting, requests) = mpsc::unbounded_channel();
        let mut starting = JoinSet::new();
        starting.spawn(start_all(round, requests));
        Self {
            waiting,
            places: Arc::new(Semaphore::new(PLACES)),
            _starting: starting,
        }
    }

    /// Has `work`, which is `count` things, done in the next round, and gives its answer; none if all has ended. Waits while
    /// too much is asked for.
    pub(crate) async fn ask(&self, count: usize, work: W) -> Option<A> {
        let places = u32::try_from(count.clamp(1, PLACES)).ok()?;
        let places = Arc::clone(&self.places).acquire_many_owned(places).await.ok()?;
        let (answer, answered) = oneshot::channel();
        let request = Request {
            work,
            answer,
            _places: places,
        };
        self.waiting.send(request).ok()?;
        answered.await.ok()
    }
}

/// Starts a round whenever somebody waits and there may be one more.
async fn start_all<W, A, F>(
    round: impl Fn(Vec<Request<W, A>>) -> F,
    mut waiting: mpsc::UnboundedReceiver<Request<W, A>>,
) where
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
        requests.retain(|request| !request.answer.is_closed());
        if requests.is_empty() {
            continue;
        }
        let round = round(std::mem::take(&mut requests));
        rounds.spawn(async move {
            round.await;
            drop(turn);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use tokio::sync::Notify;
    use tokio::time::timeout;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Rounds that wait until they are let go, and what each was asked for.
    struct Held {
        rounds: Rounds<usize, usize>,
        asked: Arc<Mutex<Vec<Vec<usize>>>>,
        go: Arc<Notify>,
    }

    fn held() -> Held {
        let (asked, go) = (Arc::<Mutex<Vec<Vec<usize>>>>::default(), Arc::new(Notify::new()));
        let (all, gate) = (Arc::clone(&asked), Arc::clone(&go));
        let rounds = Rounds::start(move |requests: Vec<Request<usize, usize>>| {
            let works = requests.iter().map(|request| request.work).collect();
            all.lock().unwrap().push(works);
            let gate = Arc::clone(&gate);
            async move {
                gate.notified().await;
                for Request { work, answer, .. } in requests {
                    let _ = answer.send(work);
                }
            }
        });
        Held { rounds, asked, go }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_who_have_left_are_not_worked_for() {
        let Held { rounds, asked, go } = held();
        // Both rounds are under way.
        for work in [1, 2] {
            assert!(timeout(SECOND, rounds.ask(1, work)).await.is_err());
        }
        for work in 3..1_000 {
            assert!(timeout(SECOND, rounds.ask(1, work)).await.is_err());
        }
        go.notify_one();
        let (stays, ()) = tokio::join!(timeout(60 * SECOND, rounds.ask(1, 7_777)), async {
            tokio::time::sleep(SECOND).await;
            go.notify_one();
            go.notify_one();
        });
        assert_eq!(stays, Ok(Some(7_777)));
        assert_eq!(*asked.lock().unwrap(), [vec![1], vec![2], vec![7_777]]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_for_more_than_there_is_room_for_waits_until_there_is() {
        let Held { rounds, asked, go } = held();
        let rounds = Arc::new(rounds);
        let mut callers = JoinSet::new();
        let most = PLACES / LARGE;
        for work in 0..most + 5 {
            let rounds = Arc::clone(&rounds);
            callers.spawn(async move { rounds.ask(LARGE, work).await });
        }
        // Whoever can be here, is.
        tokio::time::sleep(SECOND).await;
        assert_eq!(rounds.places.available_permits(), PLACES - most * LARGE);
        assert!(timeout(SECOND, rounds.ask(LARGE, 0)).await.is_err());
        // Who gave up has left nothing behind, and in the end everybody is answered.
        let letting_go = async {
            loop {
                go.notify_one();
                tokio::time::sleep(SECOND).await;
            }
        };
        let mut answers = tokio::select! {
            answers = callers.join_all() => answers,
            () = letting_go => unreachable!(),
            () = tokio::time::sleep(10_000 * SECOND) => panic!("not everybody is answered"),
        };
        answers.sort_unstable();
        assert!(answers.into_iter().eq((0..most + 5).map(Some)));
        assert_eq!(rounds.places.available_permits(), PLACES);
        let asked: usize = asked.lock().unwrap().iter().map(Vec::len).sum();
        assert_eq!(asked, most + 5);
    }
}
