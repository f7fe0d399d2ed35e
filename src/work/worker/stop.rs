//! How far a worker is to stop.

use std::sync::{Mutex, PoisonError};

use tokio::sync::{Notify, watch};
use tokio::task::{JoinError, JoinSet};

use crate::Error;

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

/// What a worker that runs is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Asked {
    Nothing,
    /// To take nothing new, and to end when its handlers have ended.
    ToDrain,
    /// The same, with a limit.
    ToStop,
}

/// Waits until a worker is asked this, or more, or until nothing can ask it any more.
pub(super) async fn until(asked: &mut watch::Receiver<Asked>, what: Asked) {
    let _ = asked.wait_for(|asked| *asked >= what).await;
}

pub(super) async fn all_ended(parts: &mut JoinSet<()>) -> Result<(), Error> {
    while let Some(ended) = parts.join_next().await {
        ended.map_err(|panic| defect(Err(panic)))?;
    }
    Ok(())
}

pub(super) fn defect(ended: Result<(), JoinError>) -> Error {
    match ended {
        Ok(()) => Error::Worker {
            source: "a part ended before it was told to".into(),
        },
        Err(error) => Error::Worker { source: error.into() },
    }
}
