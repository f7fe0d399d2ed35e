//! What needs no server and no other process: on virtual time, over a store in memory, every moment asserted to the
//! millisecond.

#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod backend;
mod claims;
mod delay;
#[path = "../support/logged.rs"]
mod logged;
mod metrics;
mod own_backend;
mod own_table;
mod scheduler;
#[path = "../support/mod.rs"]
mod support;
mod worker;
