//! Observes tasks: counters, events, histories and metrics.

pub(crate) mod events;
pub(crate) mod failure_log;
pub mod history;
pub(crate) mod metrics;
pub mod stats;
