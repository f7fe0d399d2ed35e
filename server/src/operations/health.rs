//! Which of the servers that this one works with answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use delayline::backend::Backend;
use delayline::store::Store;
use delayline::{Error, Timestamp};
use futures_util::future::{join, join_all};
use serde::Serialize;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};

use crate::time;

/// For how long a part may take to answer.
const LIMIT: Duration = Duration::from_secs(5);
/// For how long what was said holds.
const FRESH: Duration = Duration::from_secs(1);

/// A server that this one works with.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) ready: bool,
    /// When it was first seen not to answer, if it does not.
    #[serde(skip)]
    pub(crate) silent_since: Option<Timestamp>,
}

/// The servers that this one works with, and what they said last.
#[derive(Debug)]
pub(crate) struct Health {
    store: Arc<dyn Store>,
    /// What carries wake-ups, beside what the library has by itself.
    pub(crate) backends: Vec<Arc<dyn Backend>>,
    known: Arc<Mutex<LastAnswers>>,
}

#[derive(Debug, Default)]
struct LastAnswers {
    said: Option<(Instant, Vec<Part>)>,
    /// Since when parts do not answer, by their places: two may have one name.
    silent: BTreeMap<usize, Timestamp>,
}

impl Health {
    pub(crate) fn new(store: Arc<dyn Store>, backends: Vec<Arc<dyn Backend>>) -> Self {
        Self {
            store,
            backends,
            known: Arc::default(),
        }
    }

    /// Says whether each part answers, the store first. All callers of one second share an answer.
    ///
    /// `others` are parts that are known without asking.
    pub(crate) async fn parts(&self, others: Vec<(&'static str, bool)>) -> Vec<Part> {
        let (store, backends) = (Arc::clone(&self.store), self.backends.clone());
        let ask = async move {
            let asked = backends
                .iter()
                .map(|backend| is_ready(backend.name(), backend.health()));
            let (store, mut asked) = join(is_ready(store.name(), store.check()), join_all(asked)).await;
            asked.insert(0, store);
            asked.extend(others);
            asked
        };
        or_ask(&self.known, ask).await
    }
}

/// What is known, or what `ask` says: of all that want to know at once it is asked for one, and then not for a second.
async fn or_ask(
    known: &Arc<Mutex<LastAnswers>>,
    ask: impl Future<Output = Vec<(&'static str, bool)>> + Send + 'static,
) -> Vec<Part> {
    let mut known = Arc::clone(known).lock_owned().await;
    if let Some((at, parts)) = &known.said
        && at.elapsed() < FRESH
    {
        return parts.clone();
    }
    // Goes on where its caller goes away, so that no more is asked when many do.
    let asking = tokio::spawn(async move {
        let asked = ask.await;
        let parts = known.heard(asked, time::now());
        known.said = Some((Instant::now(), parts.clone()));
        parts
    });
    // It does not panic.
    asking.await.unwrap_or_default()
}

impl LastAnswers {
    fn heard(&mut self, asked: Vec<(&'static str, bool)>, now: Timestamp) -> Vec<Part> {
        let part = |(place, (name, ready))| {
            let silent_since = match ready {
                true => {
                    self.silent.remove(&place);
                    None
                }
                false => Some(*self.silent.entry(place).or_insert(now)),
            };
            Part {
                name,
                ready,
                silent_since,
            }
        };
        asked.into_iter().enumerate().map(part).collect()
    }
}

/// Why a part is not ready is for the log: to ask here takes no token.
async fn is_ready(
    name: &'static str,
    asked: impl Future<Output = Result<(), Error>>,
) -> (&'static str, bool) {
    match timeout(LIMIT, asked).await {
        Ok(Ok(())) => return (name, true),
        Ok(Err(error)) => tracing::warn!(part = name, %error, "the server is not ready"),
        Err(_) => tracing::warn!(
            part = name,
            "the server is not ready, as this part does not answer"
        ),
    }
    (name, false)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn however_many_want_to_know_it_is_asked_once_a_second() {
        let (known, calls) = (Arc::default(), Arc::new(AtomicUsize::new(0)));
        let ask = || {
            let calls = Arc::clone(&calls);
            or_ask(&known, async move {
                calls.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
                vec![("store", true)]
            })
        };
        // One goes away, and what it has begun is answered to the others.
        let gone = timeout(Duration::from_millis(10), ask()).await;
        let answers = join_all((0..100).map(|_| ask())).await;
        assert!(gone.is_err() && answers.iter().all(|parts| parts.len() == 1));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
        tokio::time::sleep(FRESH).await;
        ask().await;
        assert_eq!(calls.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_part_is_silent_since_it_was_first_seen_so_until_it_answers() {
        let mut known = LastAnswers::default();
        let mut seen = |is_ready, now| {
            let asked = vec![("redis", true), ("redis", is_ready)];
            let parts = known.heard(asked, Timestamp::from_millis(now));
            assert_eq!(parts[0].silent_since, None);
            parts[1].silent_since.map(Timestamp::as_millis)
        };
        assert_eq!(seen(true, 1), None);
        assert_eq!(seen(false, 2), Some(2));
        assert_eq!(seen(false, 4), Some(2));
        assert_eq!(seen(true, 5), None);
        assert_eq!(seen(false, 6), Some(6));
    }
}
