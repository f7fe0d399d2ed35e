//! Changes of many callers in few calls.

use std::future::Future;

use super::{AtOnce, Change, Stamped};
use crate::clock::Clock;
use crate::coalescer::{Coalescer, LARGE, Request, call_by_halves};
use crate::{Answer, Error};

/// Makes the changes of concurrent callers together, and gives each caller its own answers.
#[derive(Debug)]
pub(super) struct Merging {
    store: &'static str,
    together: Coalescer<Change, Result<MadeAtOnce, Error>>,
}

/// What came of each change, but of those whose row somebody else has locked.
pub(super) type MadeAtOnce = Stamped<Vec<AtOnce<Change, Answer>>>;

/// What came of each change.
type Made = Stamped<Vec<Result<Answer, Error>>>;

/// What came of each, where nobody can keep a row locked.
#[cfg(any(feature = "sqlite", feature = "redis"))]
pub(super) fn answered(Stamped { now, found }: Made) -> MadeAtOnce {
    let found = found.into_iter().map(AtOnce::Answered).collect();
    Stamped { now, found }
}

impl Merging {
    /// Has `at_once` make what is asked for; it waits for no stranger. Within a runtime.
    pub(super) fn start<F>(
        store: &'static str,
        clock: &Clock,
        at_once: impl Fn(Vec<Change>) -> F + Clone + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<MadeAtOnce, Error>> + Send + 'static,
    {
        let make = move |requests: Vec<Request<Change, _>>| {
            let at_once = at_once.clone();
            let make = move |changes| {
                let made = at_once(changes);
                async move { made.await.map(|Stamped { now, found }| (now, found)) }
            };
            call_by_halves(requests, make, |now, found| Stamped { now, found })
        };
        Self {
            store,
            together: Coalescer::start(clock, |_| 0, make),
        }
    }

    /// As [`Store::change`](super::Store::change), in one call with what others ask for where that is of use; by `alone`
    /// otherwise, and where somebody has a row locked.
    pub(super) async fn change<F>(
        &self,
        changes: Vec<Change>,
        alone: impl Fn(Vec<Change>) -> F,
    ) -> Result<Made, Error>
    where
        F: Future<Output = Result<Made, Error>>,
    {
        if changes.is_empty() || changes.len() >= LARGE {
            return alone(changes).await;
        }
        let made = self.together.ask(changes).await;
        let ended = || Err(Error::unanswered(self.store));
        let Stamped { now, found } = made.unwrap_or_else(ended)?;
        let wait = |locked| async { Ok(alone(locked).await?.found) };
        let found = AtOnce::all(found, wait).await;
        Ok(Stamped { now, found })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::task::JoinSet;

    use super::*;
    use crate::store::{Expect, Target, Verb};
    use crate::{TaskId, Timestamp};

    const NOW: Timestamp = Timestamp::from_millis(1);

    fn cancel(number: u8) -> Change {
        Change {
            target: Target::Id(TaskId::from_bytes([number; 16])),
            verb: Verb::Cancel,
            expect: Expect::Anything,
        }
    }

    fn stamped<T>(found: Vec<T>) -> Stamped<Vec<T>> {
        Stamped { now: NOW, found }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_share_calls_and_only_who_means_a_locked_row_asks_alone() {
        let together = Arc::new(Mutex::new(Vec::new()));
        let calls = Arc::clone(&together);
        let merging = Merging::start("s", &Clock::system(), move |changes: Vec<Change>| {
            calls.lock().unwrap().push(changes.len());
            async move {
                tokio::time::sleep(Duration::from_millis(10)).await;
                let made = |change: Change| match change == cancel(7) {
                    true => AtOnce::Locked(change),
                    false => AtOnce::Answered(Ok(Answer::NotFound)),
                };
                Ok(stamped(changes.into_iter().map(made).collect()))
            }
        });
        let (merging, alone) = (Arc::new(merging), Arc::new(Mutex::new(Vec::new())));
        let mut callers = JoinSet::new();
        for number in 0..64 {
            let (merging, alone) = (Arc::clone(&merging), Arc::clone(&alone));
            callers.spawn(async move {
                let wait = |changes: Vec<Change>| {
                    alone.lock().unwrap().extend(changes.iter().cloned());
                    async move { Ok(stamped(changes.iter().map(|_| Ok(Answer::NotFound)).collect())) }
                };
                let made = merging.change(vec![cancel(number)], wait).await.unwrap();
                assert!(matches!(made.found[..], [Ok(Answer::NotFound)]), "{made:?}");
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
        assert_eq!(*alone.lock().unwrap(), [cancel(7)]);
        let together = together.lock().unwrap();
        assert_eq!(together.iter().sum::<usize>(), 64);
        assert!(together.len() <= 3, "{together:?}");
    }
}
