//! What a process knows of paused kinds.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::warn;

use crate::clock::Moment;
use crate::kernel::Kernel;
use crate::store::unanswered;
use crate::{Kind, Timestamp, defaults, paused};

/// What this process has heard of pauses. The store is asked only where something is about to start, so an idle process
/// asks for nothing.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    heard: Mutex<Heard>,
    /// One asks on behalf of all.
    asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Heard {
    /// When the last answer was asked for.
    asked: Option<Moment>,
    until: BTreeMap<Kind, Option<Timestamp>>,
}

/// How old what is known is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Age {
    Fresh,
    /// It holds, and is to be asked for anew.
    Aging,
    /// Nothing may start by it.
    Old,
}

impl Pauses {
    /// How old what is known is.
    pub(crate) fn age(&self, now: &Moment) -> Age {
        match self.heard().asked.map(|asked| asked.until(now)) {
            Some(age) if age < defaults::PAUSE_SEEN / 2 => Age::Fresh,
            Some(age) if age < defaults::PAUSE_SEEN => Age::Aging,
            _ => Age::Old,
        }
    }

    /// Whether a kind is paused, as far as is known.
    pub(crate) fn has(&self, kind: &Kind, now: Option<Timestamp>) -> bool {
        match self.heard().until.get(kind) {
            Some(Some(until)) => now.is_none_or(|now| now < *until),
            Some(None) => true,
            None => false,
        }
    }

    /// Whether any kind is paused, as far as is known.
    pub(crate) fn is_any(&self) -> bool {
        !self.heard().until.is_empty()
    }

    /// Asks the store, unless what is known is fresh. If it does not answer, what is known holds on: a store that is away
    /// gives nothing to start either.
    pub(crate) async fn refresh(&self, kernel: &Kernel) {
        let _asking = self.asking.lock().await;
        let asked = kernel.clock.moment();
        if self.age(&asked) == Age::Fresh {
            return;
        }
        let store = &*kernel.store;
        let answer = kernel.clock.timeout(ASK_LIMIT, paused::all(store)).await;
        match answer.unwrap_or_else(|| Err(unanswered(store.name(), ASK_LIMIT))) {
            Ok(found) => {
                let until = found.into_iter().map(|paused| (paused.kind, paused.until));
                let until = until.collect();
                *self.heard() = Heard {
                    asked: Some(asked),
                    until,
                };
            }
            Err(error) => {
                warn!(
                    %error,
                    "which kinds are paused cannot be found out; it stays as it was heard last, and is asked again"
                );
                self.heard().asked = Some(kernel.clock.moment());
            }
        }
    }

    /// Forgets how fresh what is known is: this process has just changed it.
    pub(crate) fn outdate(&self) {
        self.heard().asked = None;
    }

    fn heard(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long the start of tasks waits for an answer.
const ASK_LIMIT: Duration = Duration::from_secs(1);
