//! Signals that tasks may be due.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use crate::Kind;

/// Signals that tasks may be due to callers that wait for them in this process, by the kinds that they wait for.
#[derive(Debug, Default)]
pub(crate) struct DueSignals(Mutex<Vec<(BTreeSet<Kind>, watch::Sender<()>)>>);

/// Waits for the next signal.
#[derive(Debug)]
pub(crate) struct DueSignal(watch::Receiver<()>);

impl DueSignals {
    /// Receives the signals of these kinds from now on.
    pub(crate) fn subscribe(&self, kinds: BTreeSet<Kind>) -> DueSignal {
        let (raise, signal) = watch::channel(());
        let mut subscribed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        subscribed.retain(|(_, raise)| !raise.is_closed());
        subscribed.push((kinds, raise));
        DueSignal(signal)
    }

    /// Signals that a task of this kind may be due; says whether a caller waits for it.
    pub(crate) fn raise(&self, kind: &Kind) -> bool {
        let subscribed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_awaited = false;
        for (kinds, raise) in subscribed.iter() {
            is_awaited |= kinds.contains(kind) && raise.send(()).is_ok();
        }
        is_awaited
    }

    /// The same of each of these kinds.
    pub(crate) fn raise_all<'a>(&self, kinds: impl IntoIterator<Item = &'a Kind>) {
        for kind in kinds.into_iter().collect::<BTreeSet<_>>() {
            self.raise(kind);
        }
    }
}

impl DueSignal {
    /// Ends when a signal has come since this was last cleared.
    pub(crate) async fn raised(&mut self) {
        if self.0.changed().await.is_err() {
            // The kernel that would raise it is gone.
            std::future::pending::<()>().await;
        }
    }

    /// Forgets the signals so far: what they are about is seen by the look that begins now.
    pub(crate) fn clear(&mut self) {
        self.0.mark_unchanged();
    }
}
