//! Shards whose servers do not answer.

use std::collections::HashMap;
use std::future::pending;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use super::shards::Shard;
use crate::clock::{Clock, Spawned};

/// How long after a failure a shard is tried again, and again.
const PAUSE: Duration = Duration::from_millis(500);

/// Knows the shards of a Cluster that did not answer when they were asked last, so that what is in the others does not wait
/// for them: they are left out until one try in the background is answered.
#[derive(Debug, Default)]
pub(super) struct Unreachable {
    /// Each with its tries, which end with this.
    shards: Arc<Mutex<HashMap<Shard, Spawned>>>,
}

impl Unreachable {
    pub(super) fn has(&self, shard: Shard) -> bool {
        is_tried(&lock(&self.shards), shard)
    }

    /// Adds a shard until `answers` says that it answers.
    pub(super) fn add<F>(&self, shard: Shard, clock: &Clock, mut answers: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = bool> + Send,
    {
        let shards = Arc::downgrade(&self.shards);
        let mut all = lock(&self.shards);
        if is_tried(&all, shard) {
            return;
        }
        let pausing = clock.clone();
        let tries = clock.spawn(async move {
            let mut tries = FuturesUnordered::new();
            // A try that hangs may do so long after its server is back, so it does not hold up the next one.
            while pausing.timeout(PAUSE, answered(&mut tries)).await.is_none() {
                tries.push(answers());
            }
            if let Some(shards) = shards.upgrade() {
                lock(&shards).remove(&shard);
            }
        });
        all.insert(shard, tries);
    }
}

/// Waits until one of these tries is answered: for ever, if none is or there are none.
async fn answered(tries: &mut FuturesUnordered<impl Future<Output = bool>>) {
    while let Some(is_answered) = tries.next().await {
        if is_answered {
            return;
        }
    }
    pending().await
}

/// Whether a shard is tried: tries end with their runtime, too.
fn is_tried(shards: &HashMap<Shard, Spawned>, shard: Shard) -> bool {
    shards.get(&shard).is_some_and(|tries| !tries.has_ended())
}

fn lock<T>(shards: &Mutex<T>) -> MutexGuard<'_, T> {
    shards.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    /// A try that hangs until its server is back does so for good, as its connection may be lost.
    #[tokio::test(start_paused = true)]
    async fn a_shard_is_tried_anew_while_a_try_hangs_and_left_alone_once_one_is_answered() {
        let unreachable = Unreachable::default();
        let (is_back, tries) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (back, made) = (Arc::clone(&is_back), Arc::clone(&tries));
        unreachable.add(7, &Clock::system(), move || {
            made.fetch_add(1, Ordering::Relaxed);
            let answers = back.load(Ordering::Relaxed);
            async move {
                if !answers {
                    pending::<()>().await;
                }
                answers
            }
        });
        tokio::time::sleep(4 * PAUSE).await;
        assert!(unreachable.has(7) && !unreachable.has(8));
        is_back.store(true, Ordering::Relaxed);
        tokio::time::sleep(2 * PAUSE).await;
        assert!(!unreachable.has(7));
        let made = tries.load(Ordering::Relaxed);
        tokio::time::sleep(9 * PAUSE).await;
        assert_eq!(tries.load(Ordering::Relaxed), made);
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_refuses_at_once_is_tried_after_each_pause() {
        let (unreachable, tries) = (Unreachable::default(), Arc::new(AtomicUsize::new(0)));
        let made = Arc::clone(&tries);
        unreachable.add(7, &Clock::system(), move || {
            let count = made.fetch_add(1, Ordering::Relaxed);
            async move { count == 9 }
        });
        tokio::time::sleep(9 * PAUSE + PAUSE / 2).await;
        assert!(unreachable.has(7));
        assert_eq!(tries.load(Ordering::Relaxed), 9);
        tokio::time::sleep(PAUSE).await;
        assert!(!unreachable.has(7));
    }
}
