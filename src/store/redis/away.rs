//! Shards whose servers do not answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::shards::Shard;
use crate::clock::{Clock, Spawned};

/// How long after a failure a shard is tried again, and again.
const PAUSE: Duration = Duration::from_millis(500);

/// Knows the shards of a Cluster that did not answer when they were asked last, so that what is in the others does not wait
/// for them: who asks many shards at once leaves these out, until one try in the background is answered.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// Each with its tries, which end with this.
    shards: Arc<Mutex<HashMap<Shard, Spawned>>>,
}

impl Away {
    pub(super) fn has(&self, shard: Shard) -> bool {
        self.shards().contains_key(&shard)
    }

    /// A shard does not answer; `try_it` says whether it does again.
    pub(super) fn begin<F>(&self, shard: Shard, clock: &Clock, mut try_it: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = bool> + Send,
    {
        let mut shards = self.shards();
        let away = Arc::downgrade(&self.shards);
        shards.entry(shard).or_insert_with(|| {
            let pausing = clock.clone();
            clock.spawn(async move {
                loop {
                    pausing.sleep(PAUSE).await;
                    if try_it().await {
                        break;
                    }
                }
                if let Some(away) = away.upgrade() {
                    away.lock().unwrap_or_else(PoisonError::into_inner).remove(&shard);
                }
            })
        });
    }

    fn shards(&self) -> MutexGuard<'_, HashMap<Shard, Spawned>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
