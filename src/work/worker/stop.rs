//! How far a worker is to stop.

use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

/// Tells all parts of a worker how far it is to stop.
///
/// Those who wait are woken in the order in which they came, so that a simulated history goes the same way every time:
/// `tokio::sync::watch` wakes them by chance.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    stage: Mutex<Stage>,
    changed: Notify,
}

/// How far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It works.
    #[default]
    Working,
    /// It takes nothing new, and waits for what runs.
    Draining,
    /// It stops what runs.
    Stopping,
}

impl Stop {
    pub(crate) fn stage(&self) -> Stage {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn enter(&self, stage: Stage) {
        *self.stage.lock().unwrap_or_else(PoisonError::into_inner) = stage;
        self.changed.notify_waiters();
    }

    /// Waits until the worker takes nothing new.
    pub(crate) async fn begun(&self) {
        self.beyond(Stage::Working).await;
    }

    /// Waits until the worker has gone further than this.
    pub(crate) async fn beyond(&self, stage: Stage) {
        loop {
            // Made before the look: from here on no change is missed.
            let changed = self.changed.notified();
            if self.stage() > stage {
                return;
            }
            changed.await;
        }
    }
}
