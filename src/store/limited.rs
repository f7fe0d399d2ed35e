//! No call of a store waits for ever.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::Store;
use super::delegated::delegate_store;
use crate::clock::Clock;
use crate::{Error, defaults};

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
        // It may wait for what no test clock sees, such as SQLite's thread.
        let _busy = self.clock.busy();
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

delegate_store!(Limited, store, Limited::within);
