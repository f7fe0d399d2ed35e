//! What a process knows of paused kinds.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::{info, warn};

use crate::clock::Moment;
use crate::clock::background::Background;
use crate::schedule::kernel::Kernel;
use crate::store::store_time::StoreTime;
use crate::store::{Paused, paused, unanswered};
use crate::{Error, Kind, Timestamp, defaults};

/// What this process has heard of pauses. The store is asked only where something is about to start, so an idle process
/// asks for nothing. Nothing starts unless it has answered lately: a process that cannot hear of a pause must not miss it.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    cache: Mutex<PauseCache>,
    /// One asks on behalf of all.
    asking: tokio::sync::Mutex<()>,
    /// The removal of pauses that are over.
    removing: Background,
}

#[derive(Debug, Default)]
struct PauseCache {
    /// When the last answer was asked for.
    asked: Option<Moment>,
    until: BTreeMap<Kind, Option<Timestamp>>,
    /// When and why the store has not answered, unless it has since.
    failed: Option<(Moment, Error)>,
    /// How often this process has changed what the store would answer.
    changes: u64,
}

impl Pauses {
    /// Whether what is known is fresh. If not, the store is to be asked before it is too old for a start.
    pub(crate) fn is_fresh(&self, now: &Moment) -> bool {
        self.is_younger(defaults::PAUSE_SEEN / 2, now)
    }

    fn is_younger(&self, age: Duration, now: &Moment) -> bool {
        self.cache().asked.is_some_and(|asked| asked.until(now) < age)
    }

    /// Whether a kind is paused, as far as is known.
    pub(crate) fn has(&self, kind: &Kind, time: &StoreTime) -> bool {
        let until = self.cache().until.get(kind).copied();
        match until {
            Some(Some(until)) => time.earliest().is_none_or(|now| now < until),
            Some(None) => true,
            None => false,
        }
    }

    /// Whether it is known that a kind is not paused.
    pub(crate) fn allow(&self, kind: &Kind, moment: &Moment, time: &StoreTime) -> bool {
        self.is_younger(defaults::PAUSE_SEEN, moment) && !self.has(kind, time)
    }

    /// Whether any kind is paused, as far as is known.
    pub(crate) fn is_any(&self) -> bool {
        !self.cache().until.is_empty()
    }

    /// Returns the kinds that are paused, by name. Also starts to remove pauses that are over, one removal at a time. The
    /// caller does not wait for it, as a row may be locked.
    pub(crate) async fn all(&self, kernel: &Kernel) -> Result<Vec<Paused>, Error> {
        let (found, over) = paused::all(&*kernel.store, &kernel.time).await?;
        if !over.is_empty() {
            let (store, time) = (Arc::clone(&kernel.store), Arc::clone(&kernel.time));
            self.removing.keep(|| {
                kernel
                    .clock
                    .spawn(async move { paused::remove(&*store, &time, over).await })
            });
        }
        Ok(found)
    }

    /// Asks the store, unless what is known is fresh. If it does not answer, nothing may start by what is known as soon as
    /// that is too old.
    pub(crate) async fn refresh(&self, kernel: &Kernel) -> Result<(), Error> {
        let clock = &kernel.clock;
        let came = clock.moment();
        let _asking = self.asking.lock().await;
        loop {
            let asked = clock.moment();
            if self.is_fresh(&asked) {
                return Ok(());
            }
            if let Some(error) = self.failed_since(&came) {
                return Err(error);
            }
            let changes = self.cache().changes;
            let answer = clock.timeout(ASK_LIMIT, self.all(kernel)).await;
            let answer = answer.unwrap_or_else(|| Err(unanswered(kernel.store.name(), ASK_LIMIT)));
            let found = answer.inspect_err(|error| self.failed(clock.moment(), error))?;
            let mut cache = self.cache();
            // Else the answer may be from before the change.
            if cache.changes == changes {
                cache.asked = Some(asked);
                cache.until = found
                    .into_iter()
                    .map(|paused| (paused.kind, paused.until))
                    .collect();
                if cache.failed.take().is_some() {
                    info!("which kinds are paused is known again, and tasks start");
                }
                return Ok(());
            }
        }
    }

    /// The store has not answered.
    fn failed(&self, now: Moment, error: &Error) {
        if self.cache().failed.replace((now, error.once_more())).is_none() {
            warn!(
                %error,
                "which kinds are paused cannot be found out, so no task starts here until it can; it is tried again and \
                 again: see that the store is up, and that its tables are not locked"
            );
        }
    }

    /// Why the store has not answered a caller that asked at the same time.
    fn failed_since(&self, came: &Moment) -> Option<Error> {
        let cache = self.cache();
        let (at, error) = cache.failed.as_ref()?;
        (at.instant() > came.instant()).then(|| error.once_more())
    }

    /// Forgets how fresh what is known is: this process has just changed it.
    pub(crate) fn outdate(&self) {
        let mut cache = self.cache();
        cache.asked = None;
        cache.changes += 1;
    }

    fn cache(&self) -> MutexGuard<'_, PauseCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// For how long an answer is waited for: what took longer would be too old to start anything by.
const ASK_LIMIT: Duration = defaults::PAUSE_SEEN;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::time::Duration;

    use super::{PauseCache, Pauses};
    use crate::clock::Clock;
    use crate::store::store_time::StoreTime;
    use crate::store::{MemoryStore, Stamped};
    use crate::{Kind, Scheduler, Timestamp};

    /// The store may have read its clock when the machine was awake again.
    #[tokio::test(start_paused = true)]
    async fn what_the_machine_slept_within_a_call_is_no_part_of_a_pause() {
        let (kind, now) = (Kind::from("k"), Timestamp::from_millis(0));
        let until = [(kind.clone(), Some(now.after(Duration::from_secs(20))))].into();
        let pauses = Pauses {
            cache: Mutex::new(PauseCache {
                until,
                ..PauseCache::default()
            }),
            ..Pauses::default()
        };
        let clock = Clock::simulated(1);
        let time = StoreTime::new(clock.clone());
        assert!(pauses.has(&kind, &time), "the store has said nothing yet");
        let asked = clock.moment();
        clock.suspend(Duration::from_secs(50));
        tokio::time::sleep(Duration::from_secs(50)).await;
        time.heard(&asked, Stamped { now, found: () });
        assert!(pauses.has(&kind, &time));
        tokio::time::sleep(Duration::from_secs(19)).await;
        assert!(pauses.has(&kind, &time));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!pauses.has(&kind, &time));
    }

    /// Else a worker that has just asked may start by a time from before a step of the store's clock.
    #[tokio::test]
    async fn the_answer_tells_of_the_stores_clock() {
        let store = MemoryStore::new();
        Scheduler::new(store.clone())
            .pause("k", None, "test")
            .await
            .unwrap();
        let other = Scheduler::new(store);
        assert!(other.kernel.time.now().is_none());
        other.kernel.pauses.refresh(&other.kernel).await.unwrap();
        assert!(other.kernel.time.now().is_some());
    }
}
