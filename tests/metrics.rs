//! What is told to a recorder of the crate `metrics`: each instrument by its name, its unit and its attributes.
//!
//! On virtual time, over a store in memory: every value is asserted.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "metrics/claims.rs"]
mod claims;
#[path = "metrics/recorder.rs"]
mod recorder;
#[path = "metrics/sampling.rs"]
mod sampling;
#[path = "metrics/verbs.rs"]
mod verbs;
#[path = "metrics/working.rs"]
mod working;
