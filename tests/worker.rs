//! The worker: from a wake-up to the end of a claim, whatever handlers, stores and other workers do.
//!
//! On virtual time, over a store in memory: every moment is asserted to the millisecond.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "support/logged.rs"]
mod logged;

#[path = "worker/counting.rs"]
mod counting;
#[path = "worker/expected/mod.rs"]
mod expected;
#[path = "worker/idling.rs"]
mod idling;
#[path = "worker/leases.rs"]
mod leases;
#[path = "worker/limits.rs"]
mod limits;
#[path = "worker/lost.rs"]
mod lost;
#[path = "worker/notified.rs"]
mod notified;
#[path = "worker/outcomes.rs"]
mod outcomes;
#[path = "worker/pausing.rs"]
mod pausing;
#[path = "worker/settings.rs"]
mod settings;
#[path = "worker/settling.rs"]
mod settling;
#[path = "worker/sleeping.rs"]
mod sleeping;
#[path = "worker/stalls.rs"]
mod stalls;
#[path = "worker/stopping.rs"]
mod stopping;
#[path = "worker/switching.rs"]
mod switching;
#[path = "worker/told.rs"]
mod told;
#[path = "worker/wakes.rs"]
mod wakes;
#[path = "worker/weight.rs"]
mod weight;
