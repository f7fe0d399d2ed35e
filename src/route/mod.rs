//! Sends each wake-up on its next hop.

pub(crate) mod background_sender;
mod failure_counter;
pub(crate) mod router;
