//! Slots whose servers do not answer.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::redis::Slot;
use crate::{Clock, Spawned};

/// How long after a failure a slot is tried again, and again.
const PAUSE: Duration = Duration::from_millis(500);

/// Knows the slots of a Cluster that did not answer when they were asked last, so that what is in the others does not wait
/// for them: who asks many slots at once leaves these out, until one try in the background is answered.
#[derive(Debug, Default)]
pub(super) struct Away {
    /// Each with its tries, which end with this.
    slots: Arc<Mutex<HashMap<Slot, Spawned>>>,
}

impl Away {
    pub(super) fn has(&self, slot: Slot) -> bool {
        self.slots().contains_key(&slot)
    }

    /// A slot does not answer; `try_it` says whether it does again.
    pub(super) fn begin<F>(&self, slot: Slot, clock: &Clock, mut try_it: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = bool> + Send,
    {
        let mut slots = self.slots();
        let away = Arc::downgrade(&self.slots);
        slots.entry(slot).or_insert_with(|| {
            let pausing = clock.clone();
            clock.spawn(async move {
                loop {
                    pausing.sleep(PAUSE).await;
                    if try_it().await {
                        break;
                    }
                }
                if let Some(away) = away.upgrade() {
                    away.lock().unwrap_or_else(PoisonError::into_inner).remove(&slot);
                }
            })
        });
    }

    fn slots(&self) -> MutexGuard<'_, HashMap<Slot, Spawned>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
