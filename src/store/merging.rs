//! Changes of many callers in few calls.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;

use super::{AtOnce, Change, Stamped};
use crate::clock::Clock;
use crate::coalescer::{Coalescer, LARGE, Request, call_by_halves};
use crate::{Answer, Error};

/// What came of each change.
pub(super) type Made = Stamped<Vec<Result<Answer, Error>>>;

/// What came of each change, but of those whose row somebody else has locked.
pub(super) type MadeAtOnce = Stamped<Vec<AtOnce<Change, Answer>>>;

/// How a store changes rows, each batch in a call of its own.
#[async_trait]
pub(super) trait Changing: Send + Sync + 'static {
    const NAME: &'static str;

    fn clock(&self) -> &Clock;

    /// As [`Store::change`](super::Store::change).
    async fn change_alone(&self, changes: Vec<Change>, history: Duration) -> Result<Made, Error>;

    /// The same, but waits for no stranger. By default it does where nobody can keep a row locked.
    async fn change_at_once(&self, changes: Vec<Change>, history: Duration) -> Result<MadeAtOnce, Error> {
        let Stamped { now, found } = self.change_alone(changes, history).await?;
        let found = found.into_iter().map(AtOnce::Answered).collect();
        Ok(Stamped { now, found })
    }
}

/// Makes the changes of concurrent callers together, and gives each caller its own answers.
#[derive(Debug, Default)]
pub(super) struct Merging {
    /// Begins with the first change, which is made within a runtime.
    together: OnceLock<Coalescer<Change, Result<MadeAtOnce, Error>>>,
}

impl Merging {
    /// As [`Store::change`](super::Store::change), in one call with what others ask for where that is of use, and alone
    /// otherwise, or where somebody has a row locked.
    pub(super) async fn change<S: Changing>(
        &self,
        store: &Arc<S>,
        changes: Vec<Change>,
        history: Duration,
    ) -> Result<Made, Error> {
        if changes.is_empty() || changes.len() >= LARGE {
            return store.change_alone(changes, history).await;
        }
        let start = || start(Arc::clone(store), history);
        let made = self.together.get_or_init(start).ask(changes).await;
        let Stamped { now, found } = made.unwrap_or_else(|| Err(Error::unanswered(S::NAME)))?;
        let wait = |locked| async { Ok(store.change_alone(locked, history).await?.found) };
        let found = AtOnce::all(found, wait).await;
        Ok(Stamped { now, found })
    }
}

fn start<S: Changing>(store: Arc<S>, history: Duration) -> Coalescer<Change, Result<MadeAtOnce, Error>> {
    let clock = store.clock().clone();
    let make = move |requests: Vec<Request<Change, _>>| {
        let store = Arc::clone(&store);
        let make = move |changes| {
            let store = Arc::clone(&store);
            async move {
                let Stamped { now, found } = store.change_at_once(changes, history).await?;
                Ok((now, found))
            }
        };
        call_by_halves(requests, make, |now, found| Stamped { now, found })
    };
    Coalescer::start(&clock, |_| 0, make)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

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
            note: Default::default(),
        }
    }

    fn stamped<T>(found: Vec<T>) -> Stamped<Vec<T>> {
        Stamped { now: NOW, found }
    }

    /// What it was asked for together, and alone; the row of number 7 is locked.
    struct Asked {
        clock: Clock,
        together: Mutex<Vec<usize>>,
        alone: Mutex<Vec<Change>>,
    }

    #[async_trait]
    impl Changing for Asked {
        const NAME: &'static str = "asked";

        fn clock(&self) -> &Clock {
            &self.clock
        }

        async fn change_alone(&self, changes: Vec<Change>, _: Duration) -> Result<Made, Error> {
            self.alone.lock().unwrap().extend(changes.iter().cloned());
            Ok(stamped(changes.iter().map(|_| Ok(Answer::NotFound)).collect()))
        }

        async fn change_at_once(&self, changes: Vec<Change>, _: Duration) -> Result<MadeAtOnce, Error> {
            self.together.lock().unwrap().push(changes.len());
            tokio::time::sleep(Duration::from_millis(10)).await;
            let made = |change: Change| match change == cancel(7) {
                true => AtOnce::Locked(change),
                false => AtOnce::Answered(Ok(Answer::NotFound)),
            };
            Ok(stamped(changes.into_iter().map(made).collect()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_share_calls_and_only_who_means_a_locked_row_asks_alone() {
        let store = Arc::new(Asked {
            clock: Clock::system(),
            together: Mutex::default(),
            alone: Mutex::default(),
        });
        let merging = Arc::new(Merging::default());
        let mut callers = JoinSet::new();
        for number in 0..64 {
            let (merging, store) = (Arc::clone(&merging), Arc::clone(&store));
            callers.spawn(async move {
                let change = merging.change(&store, vec![cancel(number)], Duration::ZERO);
                let made = change.await.unwrap();
                assert!(matches!(made.found[..], [Ok(Answer::NotFound)]), "{made:?}");
            });
        }
        while let Some(caller) = callers.join_next().await {
            caller.unwrap();
        }
        assert_eq!(*store.alone.lock().unwrap(), [cancel(7)]);
        let together = store.together.lock().unwrap();
        assert_eq!(together.iter().sum::<usize>(), 64);
        assert!(together.len() <= 3, "{together:?}");
    }
}
