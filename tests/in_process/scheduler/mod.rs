//! The caller's verbs: each answer is true, each time is kept, whatever the backends do.
//!
//! On virtual time, over a store in memory: every moment is asserted to the millisecond.

mod answers;
mod editing;
mod explain;
mod forecast;
mod inputs;
mod moving;
mod race;
mod routes;
mod scheduling;
mod slow_answers;
