//! What is recorded to a recorder of the crate `metrics`: each instrument by its name, its unit and its attributes.
//!
//! On virtual time, over a store in memory: every value is asserted.

mod claims;
mod recorder;
mod sampling;
mod verbs;
mod working;
