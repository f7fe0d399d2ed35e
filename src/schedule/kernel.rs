//! What a scheduler and the workers beside it share.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use tokio::sync::Mutex;

use crate::clock::Clock;
use crate::expected::Check;
use crate::observe::events::Teller;
use crate::observe::failure_log::FailureLog;
use crate::observe::metrics::{self, Metrics};
use crate::route::background_sender::BackgroundSender;
use crate::route::router::Router;
use crate::schedule::due_signals::DueSignals;
use crate::schedule::pauses::Pauses;
use crate::stats::Counters;
use crate::store::receipt::Follow;
use crate::store::store_time::{StoreTime, Timed};
use crate::store::{Ending, Histories, Keep, Store};
use crate::task::claim_id::ClaimId;
use crate::task::due_wake::DueWake;
use crate::{Error, Kind, State, Task, defaults};

/// The store, the router, the clocks and the queues that a scheduler and its workers go by.
#[derive(Debug)]
pub(crate) struct Kernel {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) router: Arc<Router>,
    /// What tasks of a kind follow.
    pub(crate) checks: BTreeMap<Kind, Check>,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    /// Of its workers one at a time listens to what other processes say, and looks on behalf of all.
    pub(crate) listening: Mutex<()>,
    pub(crate) sender: BackgroundSender,
    /// For callers that wait for due tasks without a worker.
    pub(crate) due: DueSignals,
    /// What claims without a worker share, from the first on: of a type that only they know.
    pub(crate) shared_by_claims: OnceLock<Arc<dyn Any + Send + Sync>>,
    pub(crate) pauses: Pauses,
    pub(crate) events: Teller,
    pub(crate) failures: FailureLog,
    pub(crate) metrics: Metrics,
    /// What is noted of what happens to tasks.
    pub(crate) histories: RwLock<Histories>,
}

impl Kernel {
    /// What is noted of what happens to tasks, from now on.
    pub(crate) fn histories(&self) -> Histories {
        self.histories
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// What is kept of these kinds from now on.
    pub(crate) fn keep(&self, kinds: BTreeMap<Kind, Keep>) {
        let histories = self.histories().but(&kinds);
        *self.histories.write().unwrap_or_else(PoisonError::into_inner) = histories;
        self.store.keep(&Arc::new(kinds));
    }

    /// A task is started, brought by this, and so late.
    pub(crate) fn started(&self, kind: &Kind, woken_by: &'static str, lateness: Duration) {
        self.counters.started.add(1);
        self.counters.late(lateness);
        self.metrics.started(kind, woken_by, lateness);
    }

    /// A claim of a task of this kind was ended so.
    pub(crate) fn ended(&self, kind: &Kind, ending: &Ending) {
        self.counters.ended(ending);
        self.metrics.attempted(kind, metrics::outcome(ending));
    }

    /// The same of a claim that was taken without a worker, where it may not be known of which kind it was.
    pub(crate) fn given_ended(&self, claim: ClaimId, kind: Option<&Kind>, ending: &Ending) {
        self.counters.ended(ending);
        let outcome = metrics::outcome(ending);
        self.metrics.given_ended(claim, kind, outcome, &self.clock);
    }

    /// Logs it if the end of a claim of a task is a failed attempt.
    pub(crate) fn log_failure(&self, task: &Task, ending: &Ending) {
        if let Ending::Retry { error, after, .. } = ending {
            self.failures.failed(task, error, *after, self.clock.instant());
        }
    }

    /// How many rows of a kind and a state are due within each of these spans, each counted up to
    /// [`defaults::FORECAST_LIMIT`].
    pub(crate) async fn due_within(
        &self,
        kind: &Kind,
        state: State,
        spans: &[Duration],
    ) -> Result<Timed<Vec<usize>>, Error> {
        let most = defaults::FORECAST_LIMIT;
        self.time
            .of(self.store.due_within(kind, state, spans, most))
            .await
    }

    /// Does what follows from a verb, behind the caller's back.
    pub(crate) async fn follow(&self, Follow { due_wakes, obsolete }: Follow) {
        self.sender.remove(obsolete);
        self.send_soon(due_wakes).await;
    }

    /// Sends wake-ups in the background; callers that wait here for what is due now need not wait for them.
    pub(crate) async fn send_soon(&self, due_wakes: Vec<DueWake>) {
        let now = self.clock.instant();
        let due = due_wakes.iter().filter(|due_wake| due_wake.due <= now);
        self.due.raise_all(due.map(|due_wake| &due_wake.wake.kind));
        self.sender.send(due_wakes).await;
    }
}
