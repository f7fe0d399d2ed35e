//! Shards whose servers do not answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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
            pausing.sleep(PAUSE).await;
            while !answers().await {
                pausing.sleep(PAUSE).await;
            }
            if let Some(shards) = shards.upgrade() {
                lock(&shards).remove(&shard);
            }
        });
        all.insert(shard, tries);
    }
}

/// Whether a shard is tried: tries end with their runtime, too.
fn is_tried(shards: &HashMap<Shard, Spawned>, shard: Shard) -> bool {
    shards.get(&shard).is_some_and(|tries| !tries.has_ended())
}

fn lock<T>(shards: &Mutex<T>) -> MutexGuard<'_, T> {
    shards.lock().unwrap_or_else(PoisonError::into_inner)
}
