//! Holds what is the same for every kind of a worker.

use std::sync::Arc;
use std::time::Duration;

use crate::{Task, defaults};

/// Is told of each task that ends as dead.
pub(super) type Alarm = Arc<dyn Fn(&Task) + Send + Sync>;

/// The options of a worker that every kind shares.
#[derive(Clone)]
pub(super) struct Options {
    pub(super) name: Option<String>,
    pub(super) lease: Duration,
    pub(super) sweep_every: Duration,
    pub(super) stop_timeout: Duration,
    pub(super) payload_memory: usize,
    pub(super) on_dead: Option<Alarm>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            name: None,
            lease: defaults::LEASE,
            sweep_every: defaults::SWEEP_EVERY,
            stop_timeout: defaults::STOP_TIMEOUT,
            payload_memory: defaults::WORKER_BYTES,
            on_dead: None,
        }
    }
}
