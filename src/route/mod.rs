//! Routes wake-ups: level tables, the plan of a delay, and the router that sends each wake-up on its next hop.

pub(crate) mod background_sender;
pub mod delay;
mod failure_counter;
mod level_table;
pub(crate) mod reach;
pub(crate) mod router;
