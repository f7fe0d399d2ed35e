//! The caller's verbs: each answer is true, each time is kept, whatever the backends do.
//!
//! On virtual time, over a store in memory: every moment is asserted to the millisecond.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

#[path = "scheduler/answers.rs"]
mod answers;
#[path = "scheduler/explain.rs"]
mod explain;
#[path = "scheduler/forecast.rs"]
mod forecast;
#[path = "scheduler/inputs.rs"]
mod inputs;
#[path = "scheduler/moving.rs"]
mod moving;
#[path = "scheduler/race.rs"]
mod race;
#[path = "scheduler/routes.rs"]
mod routes;
#[path = "scheduler/scheduling.rs"]
mod scheduling;
#[path = "scheduler/slow_answers.rs"]
mod slow_answers;
