//! No call of a store waits for ever.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use super::{
    Change, Claim, Guarded, Looked, NewRow, Noted, Page, Renewal, Stamped, Step, Store, Sweep, Target,
};
use crate::backend::Wake;
use crate::clock::Clock;
use crate::{Answer, Error, Kind, Scheduled, State, Task, TaskId, Timestamp, defaults};

/// A little longer than a store's own limit, which tells more and closes what hangs.
const LIMIT: Duration = defaults::STORE_TIMEOUT.saturating_add(Duration::from_secs(1));

/// Ends each call of a store that has not answered in time, whatever the store does.
#[derive(Debug)]
pub(crate) struct Limited {
    store: Arc<dyn Store>,
    clock: Clock,
}

impl Limited {
    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock) -> Self {
        Self { store, clock }
    }

    async fn within<T>(&self, call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        match self.clock.timeout(LIMIT, call).await {
            Some(answer) => answer,
            None => Err(unanswered(self.store.name(), LIMIT)),
        }
    }
}

/// The error of a call that was not answered in time.
pub(crate) fn unanswered(store: &'static str, limit: Duration) -> Error {
    Error::Store {
        store,
        transient: true,
        source: format!("no answer within {limit:?}").into(),
    }
}

/// Passes calls on, each within the limit.
macro_rules! within {
    ($(async fn $name:ident(&self $(, $argument:ident: $type:ty)*) -> $answer:ty;)*) => {
        #[async_trait]
        impl Store for Limited {
            fn name(&self) -> &'static str {
                self.store.name()
            }

            $(async fn $name(&self $(, $argument: $type)*) -> Result<$answer, Error> {
                self.within(self.store.$name($($argument),*)).await
            })*

            async fn notified(&self) {
                self.store.notified().await;
            }
        }
    };
}

within! {
    async fn now(&self) -> Timestamp;
    async fn insert(&self, rows: Vec<NewRow>) -> Stamped<Vec<Result<Scheduled, Error>>>;
    async fn change(&self, changes: Vec<Change>) -> Stamped<Vec<Result<Answer, Error>>>;
    async fn arrive(&self, wakes: &[Wake], claim: &Claim) -> Stamped<Looked>;
    async fn ready(&self, claim: &Claim) -> Stamped<Vec<Task>>;
    async fn sweep(&self, claim: &Claim, sweep: &Sweep) -> Stamped<Looked>;
    async fn advance(&self, steps: &[Step]) -> Vec<Guarded>;
    async fn renew(&self, claims: &[Renewal], lease: Duration) -> Vec<Guarded>;
    async fn find(&self, target: &Target) -> Option<Task>;
    async fn list(&self, page: &Page) -> Vec<Task>;
    async fn kinds(&self, state: State, after: Option<&Kind>, limit: usize) -> Vec<Kind>;
    async fn due_within(&self, kind: &Kind, state: State, spans: &[Duration], most: usize) -> Stamped<Vec<usize>>;
    async fn history(&self, id: TaskId) -> Noted;
    async fn purge(&self, limit: usize) -> u64;
    async fn check(&self) -> ();
}
