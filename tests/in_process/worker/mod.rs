//! The worker: from a wake-up to the end of a claim, whatever handlers, stores and other workers do.
//!
//! On virtual time, over a store in memory: every moment is asserted to the millisecond.

mod counting;
mod expected;
mod idling;
mod leases;
mod limits;
mod lost;
mod notified;
mod outcomes;
mod pausing;
mod replacing;
mod settings;
mod settling;
mod sleeping;
mod stalls;
mod stopping;
mod switching;
mod told;
mod wakes;
mod weight;
