//! What tests of this crate, and of backends and stores written elsewhere, are made of.

pub mod backend;
mod faulty;

pub use faulty::{Faults, FaultyBackend};
