//! What the gateway publishes, and by which configuration.

use std::sync::{Arc, PoisonError, RwLock};

use delayline::rocketmq::Publisher;
use delayline::{Policy, Worker};

use super::{delivery, rejected};
use crate::serve::config;
use crate::serve::traces::Traces;

/// How many messages that are due are published at once.
const PUBLISHED_AT_ONCE: usize = 64;

/// Publishes messages that are due, and knows where they may go. A clone goes by the same configuration.
#[derive(Clone)]
pub(in crate::serve) struct Publishing {
    pub(super) publisher: Publisher,
    config: Arc<RwLock<Arc<config::Gateway>>>,
    traces: Traces,
}

impl Publishing {
    pub(super) fn new(publisher: Publisher, config: config::Gateway, traces: Traces) -> Self {
        Self {
            publisher,
            config: Arc::new(RwLock::new(Arc::new(config))),
            traces,
        }
    }

    /// By what messages are dealt with at this time.
    pub(super) fn config(&self) -> Arc<config::Gateway> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Deals with the next messages by this, which consumes the same topics.
    pub(in crate::serve) fn set(&self, config: config::Gateway) {
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    /// Has the worker publish what is due, as this says.
    pub(in crate::serve) fn handlers(&self, config: &config::Gateway, mut worker: Worker) -> Worker {
        let config = Arc::new(config.clone());
        for kind in config.all_kinds() {
            let policy = Policy::new()
                .max_attempts(config.attempts.get())
                .concurrency(PUBLISHED_AT_ONCE);
            let (publisher, config) = (self.publisher.clone(), Arc::clone(&config));
            let traces = self.traces.clone();
            worker = worker.handle_bytes(kind, policy, move |context| {
                let (publisher, config) = (publisher.clone(), Arc::clone(&config));
                let span = traces.process(context.task());
                async move {
                    let outcome = delivery::publish(&publisher, &config, &context, span.place()).await;
                    span.ended(&outcome);
                    outcome
                }
            });
        }
        worker.handle_bytes(rejected::KIND, Policy::new(), rejected::end)
    }
}
